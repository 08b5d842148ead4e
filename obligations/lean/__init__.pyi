from . import printer as printer, syntax as syntax
from .canon import (
    EVERYTHING as EVERYTHING,
    TELESCOPES as TELESCOPES,
    Canon as Canon,
    Node as Node,
    Through as Through,
    binder_of as binder_of,
    same as same,
    walk as walk,
)
from .core import CoreText as CoreText, core_text as core_text
from .declaration import Declaration as Declaration, Tactic as Tactic
from .elab import (
    Constant as Constant,
    ElabError as ElabError,
    Environment as Environment,
    OutsideFragment as OutsideFragment,
    Signature as Signature,
    UnknownName as UnknownName,
    elaborate_declaration as elaborate_declaration,
    show as show,
)
from .engine import (
    Kind as Kind,
    Lean as Lean,
    LeanError as LeanError,
    Message as Message,
    as_error as as_error,
    elaborate_text as elaborate_text,
    errors as errors,
    require_lean as require_lean,
    run_project as run_project,
)
from .parse import (
    TextSpan as TextSpan,
    parse_signature as parse_signature,
    parse_term as parse_term,
    strip_comments as strip_comments,
)
from .printer import term as term
from .rewrites import gives_instance as gives_instance, rewriting as rewriting, unproved as unproved
from .scoping import (
    candidates as candidates,
    canonical as canonical,
    resolve_name as resolve_name,
    respelled as respelled,
    respelled_binders as respelled_binders,
    telescope as telescope,
)
from .source import (
    Command as Command,
    FileDeclaration as FileDeclaration,
    LeanFile as LeanFile,
    Scope as Scope,
    Slice as Slice,
    load as load,
    read as read,
    tokens as tokens,
)
from .syntax import (
    Anon as Anon,
    App as App,
    Bin as Bin,
    Ident as Ident,
    Num as Num,
    Term as Term,
    conjuncts as conjuncts,
)
from .tactic_reader import tactics as tactics
from .typed import (
    Apply as Apply,
    Bound as Bound,
    Call as Call,
    Items as Items,
    LetIn as LetIn,
    Lit as Lit,
    Local as Local,
    Op as Op,
    Text as Text,
    Typed as Typed,
    calls as calls,
    head as head,
    is_proof as is_proof,
    nat_value as nat_value,
    parts as parts,
    resolve as resolve,
    substitute as substitute,
    type_of as type_of,
    unlet as unlet,
)
from .words import (
    ASSUMED as ASSUMED,
    DEFINITIONS as DEFINITIONS,
    STATING as STATING,
    THEOREMS as THEOREMS,
)
