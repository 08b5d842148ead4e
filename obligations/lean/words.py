"""The words that begin a Lean command, by what the command does.

A word that Lean, Mathlib or a newer version adds is added here and nowhere else.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


THEOREMS = _words("theorem lemma example")
"""Declarations whose body is a proof."""

DEFINITIONS = _words("def abbrev instance irreducible_def")
"""Declarations whose body is a value."""

ASSUMED = _words("axiom opaque proof_wanted")
"""Declarations with a statement and no body that counts."""

STATING = THEOREMS | ASSUMED | DEFINITIONS - {"instance"}
"""Declarations with a statement or a value to evaluate."""

CONSTRUCTED = frozenset({"inductive", "coinductive", "class inductive"})
"""Declarations whose body is constructors."""

FIELDED = CONSTRUCTED | {"structure", "class"}
"""Declarations whose body is constructors or fields."""

DECLARING = THEOREMS | DEFINITIONS | ASSUMED | FIELDED | {"class abbrev"}
"""All declarations."""

MODIFIERS = _words("private protected noncomputable unsafe partial nonrec local scoped public meta")
"""What may stand before a declaration's word."""

SYNTAX = _words(
    "notation notation3 infix infixl infixr prefix postfix macro macro_rules syntax elab elab_rules"
)
REWRITING = SYNTAX | {"include", "omit", "#exit"}
"""Commands that change what the text after them means."""

BODILESS = _words(
    "namespace section end open import variable variables universe mutual set_option include omit "
    "prelude module"
)
"""Commands in which nothing follows that could be mistaken for another one."""

RESERVED = _words("theorem def abbrev structure inductive axiom namespace")
"""Never inside a term or a tactic: these begin a command wherever they stand outside brackets."""

_OTHERS = _words(
    "alias assert_not_exists attribute builtin_initialize compile_inductive declare_syntax_cat "
    "deriving export initialize library_note register_simp_attr run_cmd run_elab run_meta simproc "
    "unif_hint universes unset_option unseal seal"
)
ANY = MODIFIERS | DECLARING | RESERVED | SYNTAX | BODILESS | _OTHERS
"""Every word that begins a command.

Those that are not :data:`RESERVED` and declare nothing stand in terms and tactics too (``open Foo
in simp``), or may name a field: they begin a command only where the layout says so.
"""

BEFORE = _words("open set_option variable include omit universe")
"""Commands that may stand before another one with an ``in``."""

GOING_ON = _words(
    "where with then else extends at from in using by fun do let have show exact match calc if "
    "termination_by decreasing_by decreasing_with"
)
"""Words at the first column that go on with the declaration above them."""
