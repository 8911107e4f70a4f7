"""Holds the programs to run, as in `python -m experiments.train`."""
