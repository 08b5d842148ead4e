"""Derive, write and numerically confirm the tie files of verified training steps."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("obligations")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.1.0"
