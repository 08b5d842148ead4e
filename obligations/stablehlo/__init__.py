"""StableHLO training steps: read, recognised without a net, and evaluated in NumPy.

In comes the text of a module; out go its functions, the sites, backward steps and gradient nodes
found in one, and its values.

>>> from obligations.errors import Source
>>> from obligations.stablehlo import read, recognise
>>> module = read(Source("step.mlir", open("step.mlir").read()))  # doctest: +SKIP
>>> recognise(module.main, module.functions).gradients["W1"]  # doctest: +SKIP

It may import `ops` and what is below it.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
