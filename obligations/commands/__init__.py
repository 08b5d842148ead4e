"""One module for each command, imported when it runs.

In come arguments; out go an exit code and what is printed. Nothing is computed here.

They may import every room.
"""
