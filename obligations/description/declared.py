"""The names that a description brings into the Lean file: none is Lean's, the library's, or twice.

The file is evaluated by name, so that a clash would be met later all the same, as a term that
does not fit. Here it is told at the name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lark import Token

from obligations.description import text
from obligations.description.context import Context, entries
from obligations.description.names import count
from obligations.description.sites import values
from obligations.ops import names as library_names

_WORDS = """
    Prop Sort Type abbrev at attribute axiom by calc catch class def deriving do elab else end
    example export extends finally for forall from fun have if import in include inductive infix
    infixl infixr initialize instance let local macro match mut mutual namespace nofun nomatch
    noncomputable notation omit opaque open partial postfix prefix private protected return scoped
    section set_option show structure suffices syntax then theorem try universe unless unsafe using
    variable where with
"""
LEAN_WORDS = frozenset(_WORDS.split())
"""Words that Lean reads as its own wherever they stand."""

_BOUND = frozenset(("i", "j", "n", "o", "idx"))
"""What the clauses and sums of a bundle bind."""


def check_names(net: Context) -> None:
    """Refuse a name that Lean, the library or another place of the file has already."""
    _declarations(net)
    for block in net.text.blocks:
        _binders(net, block)
    _whole_net(net)


def _free(net: Context, token: Token) -> None:
    if token in LEAN_WORDS:
        net.fail(token, f"'{token}' is a word of Lean, and cannot be a name there")


# ---- declarations ----


def _declarations(net: Context) -> None:
    taken = _library()
    blocks = net.text.blocks
    new = [name for block in blocks for name in _declared(block)]
    new += [net.text.capstone.name, net.text.capstone.loss]
    records = [r for block in blocks for r in entries(block, text.Record)]
    first: dict[str, text.Record] = {}
    for record in records:
        before = first.setdefault(str(record.type), record)
        if len(before.widths) != len(record.widths):
            known = f"{count(len(before.widths), 'width')} on line {before.type.line}"
            net.fail(record.type, f"the record {record.type} has {known}")
    for token in (*new, *(r.type for r in first.values()), net.text.weights.record):
        _free(net, token)
        if token in taken:
            net.fail(token, f"the library has a '{token}' already")
    net.distinct(new, "declaration")
    net.distinct((c.prefix for block in blocks for c in entries(block, text.Cotangents)), "prefix")
    header = net.text.header
    assert header.lean is not None
    for part in header.lean[0].split("."):
        if part in LEAN_WORDS:
            net.fail(header.lean[0], f"'{part}' is a word of Lean, and cannot be a name there")


def _library() -> Collection[str]:
    """The library's names as a file may write them, its namespaces opened or not."""
    opened = ("GradNodeB.", "StableHLO.", "BackLinks.")
    found = set(library_names())
    return found | {n.removeprefix(o) for n in found for o in opened}


def _declared(block: text.BlockText) -> Iterator[Token]:
    """What the file declares of a block, beside the cotangents named by a prefix."""
    for abbreviation in entries(block, text.Abbreviate):
        yield abbreviation.name
    for bundle in entries(block, text.Bundle):
        yield bundle.name
        yield bundle.theorem
    labelled = any(c.labels for c in entries(block, text.Cotangents))
    claims = [*block.entries, *(claim for kind in block.kinds for claim in kind.claims)]
    for claim in claims:
        if isinstance(claim, text.GraphLine) and claim.defined_here:
            yield claim.name
        elif isinstance(claim, text.Tie):
            if not labelled:
                yield claim.definition
            yield claim.theorem


# ---- binders and lets ----


def _binders(net: Context, block: text.BlockText) -> None:
    """Those of a block's statements are distinct, and distinct from the lets of its bundle."""
    from obligations.ops import FLAG, STRINGS

    fixed = {"N", *STRINGS, FLAG, *_BOUND, net.classes}
    loose = (binders for line in entries(block, text.Loose) for binders, _ in line.groups)
    names = [
        *(record.binder for record in entries(block, text.Record)),
        *(b for binders in loose for b in binders),
        *(i.name for i in entries(block, text.BlockInput)),
        *(i.name for i in entries(block, text.Incoming)),
        *(h.binder for h in entries(block, text.HypothesisLine)),
        *(o.binder for o in net.text.options if o.where == block.name),
        *(name for line in entries(block, text.Saved) for name, _ in line.sites),
    ]
    applied = [v for line in entries(block, text.SiteLine) for v in values(line)]
    for token in (n for v in applied if isinstance(v, text.Applied) for n in v.names):
        for option in net.text.options:
            if token == option.binder and option.where != block.name:
                net.fail(token, f"'{token}' stands in the {option.where}, not in {block.name}")
    symbols = [*block.widths, *block.space]
    symbols += [w for kind in block.kinds for w in kind.widths or ()]
    for symbol in symbols:
        _free(net, symbol)
        if symbol in fixed:
            net.fail(
                symbol, f"'{symbol}' has a meaning of its own, and cannot be a size of the block"
            )
    sides = {"kH", "kW"}
    for name in names:
        _free(net, name)
        if name in fixed | sides or name in symbols:
            net.fail(name, f"'{name}' is also something else in {block.name}")
    net.distinct(names, "name")


def _whole_net(net: Context) -> None:
    """The binders of the whole net's theorems, and the lets of the first."""
    from obligations.ops import FLAG, SEED, STRINGS

    cotangent = net.text.capstone.cotangent
    if cotangent is not None and cotangent != SEED:
        net.fail(cotangent, f"the cotangent at the logits is called {SEED}, not '{cotangent}'")
    fixed = {"N", "w", "n", "j", SEED, *STRINGS, *net.loss.names, FLAG}
    header = net.text.header
    assert header.input is not None
    assert header.classes is not None
    names = [header.input.name, header.classes, *(o.binder for o in net.text.options)]
    names += net.text.capstone.outputs
    for name in names:
        _free(net, name)
        if name in fixed:
            net.fail(name, f"'{name}' is also something else in {net.text.capstone.name}")
    net.distinct(names, "name")
