from . import tables as tables
from .rows import BOUND as BOUND, Ledger as Ledger, Row as Row, Verdict as Verdict, Zero as Zero
from .tables import (
    columns as columns,
    error_columns as error_columns,
    is_terminal as is_terminal,
    number as number,
    placed as placed,
    reasons as reasons,
    summary as summary,
    table as table,
    width as width,
)
