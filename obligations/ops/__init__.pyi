from .artifact import (
    Form as Form,
    Formula as Formula,
    Matched as Matched,
    Shape as Shape,
    frozen as frozen,
    multiplied as multiplied,
    normal as normal,
    shape as shape,
)
from .base import (
    FLAG as FLAG,
    STRINGS as STRINGS,
    Array as Array,
    Backward as Backward,
    Clause as Clause,
    Input as Input,
    Loss as Loss,
    Mask as Mask,
    Name as Name,
    Objection as Objection,
    Operation as Operation,
    Optimizer as Optimizer,
    Padding as Padding,
    Parameter as Parameter,
    Precision as Precision,
    Stage as Stage,
    axis as axis,
    length as length,
)
from .core import Certificate as Certificate
from .join import JOIN_TOKEN as JOIN_TOKEN, SUM_WORD as SUM_WORD
from .loss import SEED as SEED
from .optimizer import SCALAR as SCALAR, applied as applied, atom as atom, named as named
from .signatures import (
    Entry as Entry,
    entry as entry,
    environment as environment,
    library as library,
)
from .table import (
    by_token as by_token,
    conventions as conventions,
    definitions as definitions,
    extended as extended,
    lookup as lookup,
    losses as losses,
    names as names,
    operations as operations,
    optimizers as optimizers,
    per_table as per_table,
    precisions as precisions,
    stages as stages,
    words as words,
)
