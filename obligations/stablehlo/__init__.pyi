from ._formulas import Pattern as Pattern, family as family
from .evaluation import evaluate as evaluate
from .ir import (
    Dense as Dense,
    Function as Function,
    Module as Module,
    Operation as Operation,
    walk as walk,
)
from .reader import read as read
from .recognition import (
    BackStep as BackStep,
    FanIn as FanIn,
    GradNode as GradNode,
    Recognised as Recognised,
    Reported as Reported,
    Site as Site,
    recognise as recognise,
)
from .value_graph import ELEMENTWISE as ELEMENTWISE, graph as graph, values as values
