"""What was checked: verdicts, rows and their columns, and the tables that show them.

In come rows; out go tables for a terminal, a pipe or a page, and plain data.

It may import `errors`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
