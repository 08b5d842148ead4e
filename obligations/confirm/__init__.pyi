from . import beyond as beyond, hypotheses as hypotheses
from .block import (
    BlockCheck as BlockCheck,
    Sample as Sample,
    samples as samples,
    scope_of as scope_of,
)
from .file import (
    FileLedger as FileLedger,
    check as check,
    described as described,
    entries_of as entries_of,
    keyed as keyed,
    keys_of as keys_of,
    stated_by as stated_by,
)
from .net import confirm as confirm, evaluate as evaluate
from .roads import measure as measure
from .slots import (
    Expected as Expected,
    expected_clauses as expected_clauses,
    misplaced as misplaced,
    misplaced_fields as misplaced_fields,
)
from .tally import Tally as Tally, found_zero as found_zero
from .true_size import check_true_size as check_true_size
from .user_names import NOTHING as NOTHING, UserNames as UserNames, load_names as load_names
from .whole import NetCheck as NetCheck, NetSample as NetSample
