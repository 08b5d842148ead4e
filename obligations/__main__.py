"""``python -m obligations``."""

from obligations.cli import main

main()
