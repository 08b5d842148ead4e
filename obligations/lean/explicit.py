"""Typed terms in core form with every implicit argument given.

The numbers are computed from typed terms, whose implicit arguments :mod:`obligations.lean.elab`
solved. Printed in full beside the written term, they let Lean say whether it solves them alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from obligations.lean.elab import Constant, Param
from obligations.lean.prelude import CORE, EXCHANGED, FULL
from obligations.lean.typed import (
    Apply,
    Bound,
    Call,
    Items,
    LetIn,
    Lit,
    Local,
    Meta,
    Op,
    Text,
    Typed,
    resolve,
    type_of,
)

_SORTS = frozenset(("Type", "Prop"))

Scope = dict[int, str]
"""What each local, by its ``uid``, is called in the text."""


@dataclass(frozen=True, slots=True)
class _Part:
    term: Typed
    scope: Scope


@dataclass(frozen=True, slots=True)
class Explicit:
    """A text, and the constants it mentions."""

    text: str
    names: frozenset[str]


def agreement(constant: Constant, *, theorem: bool) -> Explicit:
    """``Eq (@f) (fun … => body)``: that Lean's definition is the typed one.

    For a ``theorem`` the left side is its statement in core form, ``f.statement``.
    """
    used: set[str] = set()
    scope: Scope = {}
    word = "∀" if theorem else "fun"
    pieces: list[str] = []
    for param in constant.params:
        pieces += [" " if pieces else f"{word} ", _binder(param, scope, used)]
    body = constant.type if theorem else constant.body
    assert body is not None
    if pieces:
        pieces.append(", " if theorem else " => ")
    pieces.append(_text(body, scope, used))
    left = f"{constant.name}.statement" if theorem else f"(@{constant.name})"
    return Explicit(f"Eq {left} ({''.join(pieces)})", frozenset(used))


def _binder(param: Param, scope: Scope, used: set[str]) -> str:
    type_ = _text(param.local.type, scope, used)
    name = _name(param.local, scope)
    return f"{{{name} : {type_}}}" if param.implicit else f"({name} : {type_})"


def _name(local: Local, scope: Scope) -> str:
    """A name for a local that no other in scope has; it is in ``scope`` from here on."""
    name = "x" if local.name == "_" else local.name
    taken = set(scope.values())
    while name in taken:
        name += "'"
    scope[local.uid] = name
    return name


def _text(root: Typed, scope: Scope, used: set[str]) -> str:
    out: list[str] = []
    stack: list[str | _Part] = [_Part(root, scope)]
    while stack:
        piece = stack.pop()
        if isinstance(piece, str):
            out.append(piece)
        else:
            stack += reversed(_expand(resolve(piece.term), piece.scope, used))
    return "".join(out)


def _expand(term: Typed, scope: Scope, used: set[str]) -> Sequence[str | _Part]:
    """A term as text and smaller terms; brackets around all that is not a single word."""
    match term:
        case Local(uid=uid):
            return (scope[uid],)
        case Lit(value, type_):
            return (f"({value} : ", _Part(type_, scope), ")")
        case Text(value):
            return (f'"{value}"',)
        case Call(name, args):
            used.add(name)
            if name in _SORTS:
                return (name,)
            out: list[str | _Part] = [f"(@{FULL.get(name, name)}"]
            for arg in args:
                out += [" ", _Part(arg, scope)]
            return (*out, ")")
        case Apply(fn, arg):
            return ("(", _Part(fn, scope), " ", _Part(arg, scope), ")")
        case Bound():
            return _bound(term, scope)
        case LetIn(local, body):
            inner = dict(scope)
            bound = (_Part(local.type, scope), " := ", _Part(term.value, scope))
            name = _name(local, inner)
            return (f"(let {name} : ", *bound, "; ", _Part(body, inner), ")")
        case Op():
            return _operation(term, scope)
        case Items(items, type_):
            out = ["("]
            if isinstance(pair := resolve(type_), Op) and pair.op == "×":
                for item in items:
                    out += [", " if len(out) > 1 else "", _Part(item, scope)]
                return (*out, ")")
            out.append("⟨")
            for item in items:
                out += [", " if len(out) > 2 else "", _Part(item, scope)]
            return (*out, "⟩ : ", _Part(type_, scope), ")")
        case Meta(name):
            return (f"?{name}",)


def _bound(term: Bound, scope: Scope) -> Sequence[str | _Part]:
    inner = dict(scope)
    name = _name(term.local, inner)
    binder = (f"({name} : ", _Part(term.local.type, scope), ")")
    if term.kind in ("fun", "∑"):
        head = "(Fin.sum (fun " if term.kind == "∑" else "(fun "
        end = "))" if term.kind == "∑" else ")"
        return (head, *binder, " => ", _Part(term.body, inner), end)
    return ("(∀ ", *binder, ", ", _Part(term.body, inner), ")")


def _operation(term: Op, scope: Scope) -> Sequence[str | _Part]:
    op, left, right = term.op, term.left, term.right
    if op in EXCHANGED:
        op, left, right = EXCHANGED[op], right, left
    numbers = type_of(left)
    on = FULL.get(numbers.name, numbers.name) if isinstance(numbers, Call) else ""
    match resolve(left):
        case Lit(0) if op == "-" and on == "Real":
            # How a sign is read; see `obligations.lean.elab`.
            return ("(Real.neg ", _Part(right, scope), ")")
    name = CORE.get((op, on)) or CORE.get((op, ""))
    if op == "=":
        return ("(@Eq ", _Part(numbers, scope), " ", *_pair(left, right, scope), ")")
    return (f"({name} ", *_pair(left, right, scope), ")")


def _pair(left: Typed, right: Typed, scope: Scope) -> Sequence[str | _Part]:
    return (_Part(left, scope), " ", _Part(right, scope))
