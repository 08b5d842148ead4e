"""A net's text becomes a :class:`Net`.

In comes the text of a description; out go its blocks, sites and layers, its render chains and
the census of its tensors, each with its place in the text.

It may import `ops`, `lean`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
