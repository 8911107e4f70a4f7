"""Holds the mains: `python -m experiments.<train|evaluate|predict|...>`."""
