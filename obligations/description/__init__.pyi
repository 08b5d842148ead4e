from .model import (
    Alias as Alias,
    Block as Block,
    Dim as Dim,
    Graph as Graph,
    Group as Group,
    Kind as Kind,
    Layer as Layer,
    Net as Net,
    Parameter as Parameter,
    Shape as Shape,
    Site as Site,
    size_at as size_at,
)
from .reader import load as load, read_net as read_net
from .render import (
    Call as Call,
    Choice as Choice,
    Operand as Operand,
    Read as Read,
    Statement as Statement,
)
from .tensor_census import census as census
