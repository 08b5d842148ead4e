"""What was checked: rows, verdicts, and the tables that show them.

In come rows; out go tables for a terminal or a pipe, and plain data.

It may import `errors`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
