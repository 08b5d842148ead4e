from . import thread as thread
from .block import BlockTerms as BlockTerms
from .dag import (
    INCOMING as INCOMING,
    Certified as Certified,
    Difference as Difference,
    Emitted as Emitted,
    FanIn as FanIn,
    Forward as Forward,
    Step as Step,
    certify as certify,
    chosen as chosen,
    compare as compare,
    forward as forward,
    sources_of as sources_of,
)
from .deriver import Deriver as Deriver, step_definition as step_definition
from .environment import typed_environment as typed_environment
from .gate import ConventionsDiffer as ConventionsDiffer, differences as differences
from .net_names import (
    TRUE_SIZE as TRUE_SIZE,
    Narrow as Narrow,
    Stop as Stop,
    itinerary as itinerary,
    narrow as narrow,
    net_entries as net_entries,
)
from .obligation import Obligation as Obligation, ObligationKind as ObligationKind
from .section import Section as Section, flags_of as flags_of, sections as sections
from .spell import (
    Speller as Speller,
    binders as binders,
    fill as fill,
    template as template,
    times as times,
    vec as vec,
)
from .thread import Handed as Handed, Threading as Threading, Tied as Tied, threading as threading
from .tie_file import Derived as Derived, derive as derive
from .whole import LossTerms as LossTerms, WholeNetTerms as WholeNetTerms, capstone as capstone
from .zeros import block_zero_reason as block_zero_reason, whole_zero_reasons as whole_zero_reasons
