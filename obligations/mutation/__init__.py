"""Faults of a net, and what catches each.

In comes a derived net; out go its single-point faults with the check that tells each, or the
reason why it has no effect.

It may import `confirm` and what is below it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
