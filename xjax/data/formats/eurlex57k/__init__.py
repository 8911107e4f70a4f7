"""EURLEX57K (Chalkidis et al. 2019): EU legislation and EUROVOC concepts."""
