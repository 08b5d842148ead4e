"""Lean's verdict on every statement of a net or of a file.

In come statements with the signatures they may use; out go what Lean accepts, and its messages
at their places.

It may import `confirm`, `writing` and what is below them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
