"""Holds the programs of a checkout: `python -m experiments.train` etc."""
