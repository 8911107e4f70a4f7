"""One get_config() per run."""
