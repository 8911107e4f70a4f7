"""Connects the processes of a run, and locks folders for one process."""
