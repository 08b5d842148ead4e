"""A StableHLO training step held against a net's conventions.

In come a net and the text of a step; out goes a row for each convention, and each place that
differs.

It may import `confirm`, `stablehlo` and what is below them.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
