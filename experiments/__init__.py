"""The command line: `python -m experiments.<train|evaluate|predict>`."""
