from .base import (
    FLAG as FLAG,
    STRINGS as STRINGS,
    Array as Array,
    Clause as Clause,
    Loss as Loss,
    Name as Name,
    Objection as Objection,
    Operation as Operation,
    Padding as Padding,
    Precision as Precision,
    Stage as Stage,
)
from .core import Certificate as Certificate
from .join import JOIN_TOKEN as JOIN_TOKEN
from .loss import SEED as SEED
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
    lookup as lookup,
    losses as losses,
    names as names,
    operations as operations,
    precisions as precisions,
    stages as stages,
    words as words,
)
