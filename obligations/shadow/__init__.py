"""Terms become numbers.

In come typed terms, forward DAGs and samples; out go NumPy values, margins from kinks, and
derivatives of the forward by complex step.

It may import `statements` and what is below it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
