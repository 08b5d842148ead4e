"""Typed Lean terms: every implicit argument solved, every node with its type.

They are made by :mod:`obligations.lean.elab` only, from a written term and the signatures of the
names in it, so that no term with a wrong arity, a wrong named argument or a wrong dimension
exists. The shadow evaluator computes them; the core form prints them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
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

    @property
    def value(self) -> Typed:
        """What the variable stands for."""
        assert self.local.value is not None
        return self.local.value


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


def parts(term: Typed) -> tuple[Typed, ...]:
    """The direct subterms of ``term`` (types left out, a ``let``'s value included)."""
    match term:
        case Call(_, args):
            return args
        case Apply(fn, arg):
            return fn, arg
        case Bound(_, _, body):
            return (body,)
        case LetIn(_, body):
            return term.value, body
        case Op(_, left, right):
            return left, right
        case Items(items):
            return items
    return ()


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


def rebuilt(term: Typed, part: Callable[[Typed], Typed], bind: Callable[[Local], Local]) -> Typed:
    """``term`` with ``part`` in the place of its subterms and types, ``bind`` of its variable.

    A variable is bound anew before what stands under it is asked for.
    """
    match term:
        case Lit(value, type_):
            return term if type_ is NAT or type_ is REAL else Lit(value, part(type_))
        case Call(name, args, type_, named) if args:
            new = tuple(part(a) for a in args)
            return Call(name, new, None if type_ is None else part(type_), named)
        case Apply(fn, arg, type_):
            return Apply(part(fn), part(arg), part(type_))
        case Bound(kind, local, body, type_, binder):
            new_local, body = bind(local), part(body)
            return Bound(kind, new_local, body, None if type_ is None else part(type_), binder)
        case LetIn(local, body, type_):
            return LetIn(bind(local), part(body), part(type_))
        case Op(op, left, right, type_):
            return Op(op, part(left), part(right), part(type_))
        case Items(items, type_):
            return Items(tuple(part(i) for i in items), part(type_))
    return term


def substitute(term: Typed, values: Mapping[int, Typed]) -> Typed:
    """``term`` with locals replaced by ``values`` (by ``uid``), metas looked through."""
    known = dict(values)

    def bind(local: Local) -> Local:
        value = None if local.value is None else inside(local.value)
        new = Local(local.name, inside(local.type), value)
        known[local.uid] = new
        return new

    def inside(term: Typed) -> Typed:
        term = resolve(term)
        return known.get(term.uid, term) if isinstance(term, Local) else rebuilt(term, inside, bind)

    return inside(term)


def head(term: Typed | None) -> str:
    """The constant that ``term`` is or applies; empty where there is none."""
    found = None if term is None else resolve(term)
    return found.name if isinstance(found, Call) else ""


def is_proof(local: Local) -> bool:
    """Whether a variable stands for a proof."""
    return head(type_of(local.type)) == "Prop"


def unlet(term: Typed) -> Typed:
    """``term`` with a variable of a ``let`` looked through."""
    term = resolve(term)
    while isinstance(term, Local) and term.value is not None:
        term = resolve(term.value)
    return term


def calls(term: Typed) -> Iterator[Call]:
    """Every application in ``term``, in its order, ``let`` values included, types left out."""
    stack = [term]
    while stack:
        at = resolve(stack.pop())
        if isinstance(at, Call):
            yield at
        stack.extend(reversed(parts(at)))
