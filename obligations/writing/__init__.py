"""Obligations become the text of a file.

In come derived statements; out go layout, docstrings, headers and hashes, and a file that is
written whole.

It may import `statements` and what is below it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
