"""A :class:`Net` becomes the obligations of its tie file.

In comes a net; out go the forward and the emitted DAG of each block, how they differ, and every
statement as one typed term with its proof, in the file's order.

It may import `description`, `ops`, `lean`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
