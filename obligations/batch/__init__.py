"""Many checks at once: units of work, schedulers, results that are gone on with.

In come derived nets; out go their ledgers, evaluated in this process, in others or on a cluster,
and kept in a file.

It may import `confirm` and what is below it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
