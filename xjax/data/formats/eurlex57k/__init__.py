"""Reads EURLEX57K (Chalkidis et al. 2019): EU laws and EUROVOC concepts."""
