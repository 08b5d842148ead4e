"""Slots that no value depends on, checked by what stands in them.

The bias in a weight's clause, the weight and the input in a bias's, the bias of an input-gradient,
the strings: a statement is as true with the wrong one, and so no number shows it. What should
stand there follows from the forward alone: the parameters of a layer stand together, a string
goes where its own name is, and a clause is the operation table's, filled for its layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from obligations.description import Block, Net, Parameter
from obligations.errors import ObligationsError
from obligations.lean import (
    Apply,
    Bound,
    Call,
    Constant,
    ElabError,
    Environment,
    Items,
    Lit,
    Local,
    Op,
    Text,
    Typed,
    calls,
    elaborate_declaration,
    head,
    resolve,
    show,
    syntax as s,
    type_of,
    unlet,
)
from obligations.ops import FLAG, STRINGS
from obligations.shadow import Evaluator, Leaf, NotEvaluable
from obligations.statements import Deriver, Forward, Speller, binders, fill, vec

COTANGENT = "cot₀"
"""The binder of the cotangent in a clause as it should be; no net writes a name like it."""


def field_of(term: Typed) -> str | None:
    """The last field of a path: ``W₁`` of ``p.W₁``; a variable's own name; else ``None``."""
    term = unlet(term)
    if isinstance(term, Local):
        return term.name
    if isinstance(term, Call) and term.args and "." in term.name:
        root = resolve(term.args[-1])
        while isinstance(root, Call) and root.args and "." in root.name:
            root = resolve(root.args[-1])
        return term.name.rsplit(".", 1)[1] if isinstance(root, Local) else None
    return None


def applied(term: Typed, env: Environment) -> Iterator[tuple[Call, list[tuple[Local, Typed]]]]:
    """Every application of a known name in ``term``, its arguments by the binders they are for."""
    for call in calls(term):
        constant = env.find(call.name)
        if constant is not None:
            yield call, [(p.local, a) for p, a in zip(constant.params, call.args, strict=False)]


# -- what stands together ----------------------------------------------------------------------


def misplaced(
    term: Typed, env: Environment, fwd: Forward, roles: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Parameters of one layer that stand with another's, and strings in each other's place.

    Every application in ``term`` is looked at, ``let`` values included; file definitions are
    looked at where they are defined. ``roles`` gives the name of a binder that is called
    otherwise.
    """
    roles = roles or {}
    owners = {p.lean: p for site in fwd.sites.values() for p in site.parameters}
    seen: set[str] = set()
    for call, slots in applied(term, env):
        strings = _strings(call, slots, STRINGS, roles)
        for note in (*_together(call, slots, owners, fwd, roles), *strings):
            if note not in seen:
                seen.add(note)
                yield note


def _together(
    call: Call,
    slots: list[tuple[Local, Typed]],
    owners: Mapping[str, Parameter],
    fwd: Forward,
    roles: Mapping[str, str],
) -> Iterator[str]:
    found: dict[str, Parameter] = {}
    for local, argument in slots:
        name = field_of(argument) or ""
        owner = owners.get(roles.get(name, name))
        if owner is not None and local.name in SYMBOLS:
            found[local.name] = owner
        # A loose parameter's binder is called as the parameter is, in every declaration.
        if owner is not None and local.name in owners and local.name != owner.lean:
            yield f"{call.name} has {owner.lean} where {local.name} belongs"
    sites = {p.site: {q.symbol: q for q in fwd.sites[p.site].parameters} for p in found.values()}
    for slot, parameter in found.items():
        if parameter.symbol != slot:
            yield f"{call.name} has {parameter.lean} where a {slot} belongs"
            continue
        # A layer is known by its weight, a BatchNorm by its γ.
        for lead in ("W", "γ"):
            first = found.get(lead)
            own = None if first is None else sites[first.site].get(slot)
            if own is not None and own != parameter and first is not None:
                beside = f"{parameter.lean} beside {first.lean}"
                yield f"{call.name} has {beside}, whose own is {own.lean}"


SYMBOLS = frozenset(("W", "b", "ε", "γ", "β"))


def _strings(
    call: Call, slots: list[tuple[Local, Typed]], known: Iterable[str], roles: Mapping[str, str]
) -> Iterator[str]:
    for local, argument in slots:
        if local.name not in known:
            continue
        argument = resolve(argument)
        if not isinstance(argument, Local):
            continue
        name = roles.get(argument.name, argument.name)
        if name in known and name != local.name:
            yield f"{call.name} has the string {argument.name} where {local.name} belongs"


def misplaced_fields(term: Typed, env: Environment, net: Net) -> Iterator[str]:
    """At the whole net: a loose block's parameter given to another of its binders; strings."""
    fields = {
        name: (block, field)
        for block in net.blocks.values()
        for group in block.loose
        for name, field in group
    }
    loose = {field for _, field in fields.values()}
    for call, slots in applied(term, env):
        yield from _strings(call, slots, (*STRINGS, *net.loss.strings), {})
        for local, argument in slots:
            wanted = fields.get(local.name)
            found = field_of(argument)
            if wanted is None or found is None or found not in loose or found == wanted[1]:
                continue
            yield f"{call.name} has {found} where {wanted[1]} belongs"


# -- a clause as it should be ------------------------------------------------------------------


Expected = tuple[Constant, ...]
"""The clauses of one parameter as the forward implies them, one per form of the table."""


def expected_clauses(net: Net, block: Block, env: Environment) -> dict[str, Expected]:
    """By the parameter's Lean name, its clause with every slot filled from the forward.

    The cotangent is the binder :data:`COTANGENT`. Forms whose names ``env`` does not know are
    left out.
    """
    deriver = Deriver.plain(net, block)
    speller = Speller(deriver.fwd, {}, {})
    out: dict[str, Expected] = {}
    for site in deriver.fwd.sites.values():
        for clause in site.clauses:
            read = {symbol: speller.value(name) for symbol, name in site.operands()}
            symbols = speller.symbols(site, **read, cot=s.Ident(COTANGENT))
            values = [
                *deriver.parameter_binders(),
                (FLAG, s.BOOL),
                *deriver.option_binders(),
                deriver.input_binder(),
                (COTANGENT, vec(site.shape)),
            ]
            groups, _ = deriver.frame(values, None, STRINGS)
            implicit = {n for g in groups if g.kind == "{" for n in g.names}
            missing = [w for w in deriver.widths() if w not in implicit]
            groups = (groups[0], *binders([(w, s.NAT) for w in missing], "{"), *groups[1:])
            forms = []
            for form in clause.forms():
                value = fill(form.text, symbols)
                with suppress(ElabError):
                    forms.append(elaborate_declaration(env, "clause", groups, s.PROP, value))
            covered = {p.symbol: p.lean for p in site.parameters}
            for symbol in clause.covers:
                out[covered[symbol]] = tuple(forms)
    return out


def clause_difference(evaluator: Evaluator, leaf: Leaf, expected: Leaf) -> str | None:
    """Where a clause's statement is not the expected one, or ``None`` where it is.

    What has a value is compared by its value, so that a ``let``, an abbreviation or a stage's
    name is as good as what it stands for; the rest by its form.
    """
    return _Alike(evaluator, leaf.scope, expected.scope).difference(
        leaf.statement, expected.statement, {}, ""
    )


@dataclass(frozen=True, slots=True)
class _Alike:
    evaluator: Evaluator
    scope: Mapping[int, Any]
    other: Mapping[int, Any]

    def difference(self, a: Typed, b: Typed, bound: dict[int, int], slot: str) -> str | None:
        a, b = resolve(a), resolve(b)
        if self.closed(a, bound) and self.closed(b, set(bound.values())):
            try:
                found, wanted = self.plain(a, self.scope), self.plain(b, self.other)
            except (NotEvaluable, ObligationsError):
                found = wanted = None
            if found is not None and wanted is not None:
                if _same(found, wanted):
                    return None
                return _told(slot, a, b)
        a, b = unlet(a), unlet(b)
        match a, b:
            case Local(uid=x), Local(uid=y):
                if bound.get(x) == y:
                    return None
            case Lit(x), Lit(y):
                if x == y:
                    return None
            case Call(f, xs), Call(g, ys) if f == g and len(xs) == len(ys):
                constant = self.evaluator.env.find(f)
                params = [] if constant is None else [p.local.name for p in constant.params]
                for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
                    if head(type_of(x)) == "Type":
                        continue
                    name = params[i] if i < len(params) else ""
                    found_there = self.difference(x, y, bound, name if name in _SHOWN else slot)
                    if found_there is not None:
                        return found_there
                return None
            case Apply(f, x), Apply(g, y):
                return self.difference(f, g, bound, slot) or self.difference(x, y, bound, slot)
            case Bound(k, v, body), Bound(l, u, other) if k == l:
                return self.difference(body, other, {**bound, v.uid: u.uid}, slot)
            case Op(f, x, y), Op(g, u, v) if f == g:
                return self.difference(x, u, bound, slot) or self.difference(y, v, bound, slot)
            case Items(xs), Items(ys) if len(xs) == len(ys):
                return next(
                    (
                        d
                        for x, y in zip(xs, ys, strict=True)
                        if (d := self.difference(x, y, bound, slot)) is not None
                    ),
                    None,
                )
        return _told(slot, a, b)

    def closed(self, term: Typed, bound: Any) -> bool:
        return not any(v.uid in bound for v in self.evaluator.free(term))

    def plain(self, term: Typed, scope: Mapping[int, Any]) -> Any:
        """The value of ``term`` where it is a number, a tensor, a string or a flag."""
        if isinstance(term, Text):
            return term.value
        if isinstance(term, Bound) and term.kind in ("∀", "Pi", "∑"):
            return None
        if isinstance(term, Call) and (term.name == "den" or term.name.startswith("SHlo.")):
            # A node is compared slot by slot: its value is what the numbers are about.
            return None
        if head(type_of(term)) in ("Prop", "Type"):
            return None
        value = self.evaluator.value(term, scope)
        return None if callable(value) else value


def _told(slot: str, found: Typed, wanted: Typed) -> str:
    what = {"": "a slot", "name": "the string"}.get(slot, slot)
    return f"{what} is {_text(found)}; the layer's is {_text(wanted)}"


def _text(term: Typed) -> str:
    """A parameter as it is written; anything else shortened."""
    return field_of(term) or show(term, 60)


_SHOWN = frozenset((*SYMBOLS, *STRINGS, FLAG, "x", "v", "cot", "e", "name"))
"""Slots a difference is reported at; what is inside another is reported at that."""


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if a.shape != b.shape:
            return False
        scale = max(float(np.max(np.abs(a), initial=0.0)), float(np.max(np.abs(b), initial=0.0)))
        return bool(np.max(np.abs(a - b), initial=0.0) <= 1e-9 * scale)
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and bool(a == b)
