"""Defines the flags that several commands share, and runs commands."""
