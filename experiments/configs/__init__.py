"""Holds one file with get_config() per run."""
