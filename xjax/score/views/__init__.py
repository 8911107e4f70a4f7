"""Holds the further views of training documents."""
