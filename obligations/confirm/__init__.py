"""What is evaluated, and what it must equal.

In come obligations, derived or read from a file; out go ledgers: a row for each statement, for
each hypothesis, and for what is claimed beside the file.

It may import `shadow`, `ledger` and what is below them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
