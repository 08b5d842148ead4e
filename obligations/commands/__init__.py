"""The commands: module ``NAME_`` holds the Click command of ``obligations NAME``."""
