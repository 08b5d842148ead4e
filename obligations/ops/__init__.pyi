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
    Mask as Mask,
    Name as Name,
    Operation as Operation,
    Optimizer as Optimizer,
    Padding as Padding,
    Parameter as Parameter,
    Stage as Stage,
    length as length,
)
from .core import Certificate as Certificate
from .join import JOIN_TOKEN as JOIN_TOKEN, SUM_WORD as SUM_WORD
from .loss import (
    COTANGENT as COTANGENT,
    LOSS as LOSS,
    LOSS_STRINGS as LOSS_STRINGS,
    ROW as ROW,
    ROW_PROOF as ROW_PROOF,
    ROWS as ROWS,
    TARGET_SUMS_TO_ONE as TARGET_SUMS_TO_ONE,
    smoothed_cotangent as smoothed_cotangent,
)
from .optimizer import SCALAR as SCALAR, applied as applied, atom as atom, named as named
from .signatures import (
    Entry as Entry,
    entry as entry,
    environment as environment,
    library as library,
)
from .table import (
    by_token as by_token,
    definitions as definitions,
    extended as extended,
    lookup as lookup,
    names as names,
    operations as operations,
    optimizers as optimizers,
    per_table as per_table,
    stages as stages,
    words as words,
)
