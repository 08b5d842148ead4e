"""The operation table: all that is known of an operation, one module per family.

In comes a word, a token or a name; out go its entry, its signature, its meaning in NumPy. A new
operation is one entry in its family's module; a new family is one module, named in
:mod:`~obligations.ops.table`. Nothing is built before it is asked for.

It may import `lean`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
