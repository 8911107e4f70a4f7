"""Holds the version of xjax; setup.py reads it from this file."""

__version__ = '0.1.0'
