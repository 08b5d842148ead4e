"""Typed Lean terms: every implicit argument solved, every node with its type.

They are made by :mod:`obligations.lean.elab` only, from a written term and the signatures of the
names in it, so that no term with a wrong arity, a wrong named argument or a wrong dimension
exists. The shadow evaluator computes them; the core form prints them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

_fresh = itertools.count(1)


@dataclass(frozen=True, slots=True, eq=False)
class Local:
    """A bound variable; two are the same only if they are the same object.

    ``value`` is the term of a ``let``, looked through by definitional equality.
    """

    name: str
    type: Typed
    value: Typed | None = None
    uid: int = field(default_factory=lambda: next(_fresh))


@dataclass(slots=True, eq=False)
class Meta:
    """An implicit argument still to be solved."""

    name: str
    type: Typed | None
    solution: Typed | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Lit:
    """A numeral of type ``Nat``, ``ℝ`` or ``Fin n``."""

    value: int
    type: Typed


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A string literal."""

    value: str


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A constant with its arguments in signature order, implicit ones included.

    ``args`` may stop short of the signature (a partial application). ``named`` lists implicit
    binders the written term gave by name. ``type`` is the type of the whole.
    """

    name: str
    args: tuple[Typed, ...]
    type: Typed | None
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    """A value applied to one argument: a local function, or a vector at an index."""

    fn: Typed
    arg: Typed
    type: Typed


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """``fun``, ``∀``, ``Pi``, ``∑`` over one variable.

    ``kind`` is ``"fun"``, ``"∀"`` (a proposition), ``"Pi"`` (a type) or ``"∑"``; ``binder`` is
    the bracket a ``Pi`` binder was written with.
    """

    kind: str
    local: Local
    body: Typed
    type: Typed | None
    binder: str = "("


@dataclass(frozen=True, slots=True, eq=False)
class LetIn:
    """``let local := local.value; body``."""

    local: Local
    body: Typed
    type: Typed


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """An infix operation with its operands; ``op`` as in the written term."""

    op: str
    left: Typed
    right: Typed
    type: Typed


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """An anonymous constructor or a pair."""

    items: tuple[Typed, ...]
    type: Typed


Typed = Local | Meta | Lit | Text | Call | Apply | Bound | LetIn | Op | Items

TYPE = Call("Type", (), None)
PROP = Call("Prop", (), TYPE)
NAT = Call("Nat", (), TYPE)
REAL = Call("ℝ", (), TYPE)
STRING = Call("String", (), TYPE)
BOOL = Call("Bool", (), TYPE)


def resolve(term: Typed) -> Typed:
    """``term`` with a solved meta at its head looked through."""
    while isinstance(term, Meta) and term.solution is not None:
        term = term.solution
    return term


def type_of(term: Typed) -> Typed:
    """The type of ``term``, its head resolved."""
    term = resolve(term)
    if isinstance(term, Text):
        return STRING
    found = term.type
    if found is None:
        return TYPE
    return resolve(found)


def parts(term: Typed) -> Iterator[Typed]:
    """The direct subterms of ``term`` (types left out, a ``let``'s value included)."""
    match term:
        case Call(_, args):
            yield from args
        case Apply(fn, arg):
            yield fn
            yield arg
        case Bound(_, _, body):
            yield body
        case LetIn(local, body):
            if local.value is not None:
                yield local.value
            yield body
        case Op(_, left, right):
            yield left
            yield right
        case Items(items):
            yield from items
        case _:
            return


def nat_value(term: Typed) -> int | None:
    """The number a closed ``Nat`` term computes to, or ``None`` when it is not closed."""
    term = resolve(term)
    if isinstance(term, Lit):
        return term.value
    if isinstance(term, Op) and term.op in "*+-":
        left = nat_value(term.left)
        if left is None:
            return None
        right = nat_value(term.right)
        if right is None:
            return None
        if term.op == "*":
            return left * right
        return left + right if term.op == "+" else max(0, left - right)
    if isinstance(term, Local) and term.value is not None:
        return nat_value(term.value)
    return None


def substitute(term: Typed, values: dict[int, Typed]) -> Typed:
    """``term`` with locals replaced by ``values`` (by ``uid``), metas looked through."""
    term = resolve(term)
    match term:
        case Local(uid=uid):
            return values.get(uid, term)
        case Lit(value, type_):
            if type_ is NAT or type_ is REAL:
                return term
            return Lit(value, substitute(type_, values))
        case Call(name, args, type_, named):
            if not args:
                return term
            new = tuple(substitute(a, values) for a in args)
            return Call(name, new, None if type_ is None else substitute(type_, values), named)
        case Apply(fn, arg, type_):
            return Apply(substitute(fn, values), substitute(arg, values), substitute(type_, values))
        case Bound(kind, local, body, type_, binder):
            new_local = Local(local.name, substitute(local.type, values))
            inner = {**values, local.uid: new_local}
            return Bound(
                kind,
                new_local,
                substitute(body, inner),
                None if type_ is None else substitute(type_, values),
                binder,
            )
        case LetIn(local, body, type_):
            assert local.value is not None
            new_local = Local(
                local.name, substitute(local.type, values), substitute(local.value, values)
            )
            inner = {**values, local.uid: new_local}
            return LetIn(new_local, substitute(body, inner), substitute(type_, inner))
        case Op(op, left, right, type_):
            return Op(op, substitute(left, values), substitute(right, values), type_)
        case Items(items, type_):
            return Items(tuple(substitute(i, values) for i in items), substitute(type_, values))
        case _:
            return term
