from .evaluation import Evaluation as Evaluation, evaluate as evaluate
from .reader import (
    Argument as Argument,
    Dense as Dense,
    Function as Function,
    Module as Module,
    Operation as Operation,
    Region as Region,
    TensorType as TensorType,
    read as read,
    walk as walk,
)
from .recognition import (
    BackStep as BackStep,
    FanIn as FanIn,
    GradNode as GradNode,
    Loss as Loss,
    Recognised as Recognised,
    Reported as Reported,
    Site as Site,
    Unmatched as Unmatched,
    Update as Update,
    cotangents as cotangents,
    recognise as recognise,
)
from .value_graph import ELEMENTWISE as ELEMENTWISE, graph as graph, values as values
