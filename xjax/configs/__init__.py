"""Holds the config files, one per run; each has get_config()."""
