"""StableHLO training steps: read, recognised without a net, and evaluated in NumPy.

>>> from obligations.errors import Source
>>> from obligations.stablehlo import read, recognise
>>> module = read(Source("step.mlir", open("step.mlir").read()))  # doctest: +SKIP
>>> recognise(module.main, module.functions).gradients["W1"]  # doctest: +SKIP
"""

from obligations.stablehlo.evaluate import Evaluation, evaluate
from obligations.stablehlo.graph import graph, values
from obligations.stablehlo.ir import (
    Argument,
    Dense,
    Function,
    Module,
    Operation,
    Region,
    TensorType,
    walk,
)
from obligations.stablehlo.reader import read
from obligations.stablehlo.recognise import (
    BackStep,
    FanIn,
    GradNode,
    Loss,
    Recognised,
    Site,
    Unmatched,
    Update,
    cotangents,
    recognise,
)

__all__ = [
    "Argument",
    "BackStep",
    "Dense",
    "Evaluation",
    "FanIn",
    "Function",
    "GradNode",
    "Loss",
    "Module",
    "Operation",
    "Recognised",
    "Region",
    "Site",
    "TensorType",
    "Unmatched",
    "Update",
    "cotangents",
    "evaluate",
    "graph",
    "read",
    "recognise",
    "values",
    "walk",
]
