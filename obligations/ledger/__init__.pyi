from . import plain as plain
from .report import (
    narrow as narrow,
    placed as placed,
    reasons as reasons,
    show_ledger as show_ledger,
    summary as summary,
    worst_of as worst_of,
)
from .rows import (
    BOUND as BOUND,
    ELABORATED as ELABORATED,
    ERRORS as ERRORS,
    Ledger as Ledger,
    Line as Line,
    Row as Row,
    Zero as Zero,
    further_table as further_table,
    ledger_table as ledger_table,
    legend as legend,
    number as number,
    worst as worst,
)
from .tables import (
    Column as Column,
    Table as Table,
    columns as columns,
    is_terminal as is_terminal,
    markdown_lines as markdown_lines,
    paragraph as paragraph,
    show as show,
    unmarked as unmarked,
    width as width,
    working as working,
)
from .verdicts import Verdict as Verdict
