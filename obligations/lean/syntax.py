"""Lean terms as they are written: what the printer prints and the reader reads.

A term here is syntax without types; :mod:`obligations.lean.elab` gives it a type or refuses it.
Every class is a frozen dataclass. ``span`` is where a read term stood and never takes part in
comparison, so that a printed and re-read term equals the one it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import count
from typing import Any, Literal, TypeVar

from obligations.errors import Span


@dataclass(frozen=True, slots=True)
class _Node:
    span: Span | None = field(default=None, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class Ident(_Node):
    """A name, dots included: ``xin``, ``p.W₁``, ``GradNodeB.ConvWTiedB``, ``«odd name»``."""

    name: str


@dataclass(frozen=True, slots=True)
class Num(_Node):
    """A numeral ``56``."""

    value: int


@dataclass(frozen=True, slots=True)
class Str(_Node):
    """A string literal; ``value`` is the text between the quotes, escapes as written."""

    value: str


@dataclass(frozen=True, slots=True)
class Hole(_Node):
    """``_``, or ``?_`` and ``?name`` with ``name`` set (``"?_"``)."""

    name: str = "_"


@dataclass(frozen=True, slots=True)
class DotIdent(_Node):
    """A name resolved by the expected type: ``.operand``."""

    name: str


@dataclass(frozen=True, slots=True)
class NamedArg(_Node):
    """``(h := 2 * h)`` among the arguments of an application."""

    name: str
    value: Term


@dataclass(frozen=True, slots=True)
class App(_Node):
    """``fn a b (h := c)``; ``fn`` is never itself an :class:`App`, ``args`` never empty."""

    fn: Term
    args: tuple[Term | NamedArg, ...]


@dataclass(frozen=True, slots=True)
class Proj(_Node):
    """``(term).field``, for a head that is not a plain name."""

    term: Term
    field: str


@dataclass(frozen=True, slots=True)
class Binder(_Node):
    """One binder group: ``(x y : T)``, ``{c : Nat}``, ``[Fact p]``, or bare ``x`` / ``x : T``.

    ``kind`` is ``"("``, ``"{"``, ``"["``, ``"⦃"`` or ``""`` for a bare one. ``default`` is the
    term of ``(x : T := default)``.
    """

    names: tuple[str, ...]
    type: Term | None = None
    kind: str = "("
    default: Term | None = None


_Joined = TypeVar("_Joined")
Quantifier = Literal["fun", "∀", "∃", "∑", "∏"]


@dataclass(frozen=True, slots=True)
class Bind(_Node):
    """``fun b => e``, ``∀ b, e``, ``∃ b, e``, ``∑ b, e``, ``∏ b, e``."""

    quantifier: Quantifier
    binders: tuple[Binder, ...]
    body: Term


@dataclass(frozen=True, slots=True)
class Let(_Node):
    """``let name : type := value`` and the term after it."""

    name: str
    type: Term | None
    value: Term
    body: Term


@dataclass(frozen=True, slots=True)
class Bin(_Node):
    """An infix operation; ``op`` as printed: ``* + - / = ≠ < ≤ > ≥ ∧ ∨ ↔ → ∘ × ^ ++ |>``."""

    op: str
    left: Term
    right: Term


@dataclass(frozen=True, slots=True)
class Un(_Node):
    """A prefix operation (``-x``, ``¬p``) or the postfix ``x⁻¹``."""

    op: str
    term: Term


@dataclass(frozen=True, slots=True)
class Ascribe(_Node):
    """``(term : type)``, parentheses always printed."""

    term: Term
    type: Term


@dataclass(frozen=True, slots=True)
class Anon(_Node):
    """An anonymous constructor ``⟨a, b⟩``."""

    items: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Tuple(_Node):
    """A tuple ``(a, b)`` of at least two items."""

    items: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Raw(_Node):
    """A stretch of Lean outside the fragment, kept as its tokens."""

    tokens: tuple[str, ...]


Term = (
    Ident
    | Num
    | Str
    | Hole
    | DotIdent
    | App
    | Proj
    | Bind
    | Let
    | Bin
    | Un
    | Ascribe
    | Anon
    | Tuple
    | Raw
)


NAT = Ident("Nat")
REAL = Ident("ℝ")
BOOL = Ident("Bool")
STRING = Ident("String")
PROP = Ident("Prop")
TYPE = Ident("Type")


def app(fn: Term | str, *args: Term | NamedArg | str) -> Term:
    """``fn`` applied to ``args`` (strings are names); joins a nested application to one."""
    head: Term = Ident(fn) if isinstance(fn, str) else fn
    rest = tuple(Ident(a) if isinstance(a, str) else a for a in args)
    if not rest:
        return head
    if isinstance(head, App):
        return App(head.fn, head.args + rest)
    return App(head, rest)


def children(term: Term | NamedArg | Binder) -> Iterator[Term | NamedArg | Binder]:
    """The direct parts of ``term``, in the order they are written."""
    for f in fields(term):
        if f.name == "span":
            continue
        value = getattr(term, f.name)
        if isinstance(value, _Node):
            yield value  # type: ignore[misc]
        elif isinstance(value, tuple):
            for item in value:
                if isinstance(item, _Node):
                    yield item  # type: ignore[misc]


Part = Callable[[Term, tuple[str, ...]], Term]
"""Makes a new part of an old one; it is told what the term around it binds in that part."""


def rebuilt(term: Term, part: Part) -> Term:
    """``term`` with ``part`` in the place of each of its direct parts, in the order written."""
    match term:
        case App(fn, args):
            new = part(fn, ())
            return replace(term, fn=new, args=tuple(_argument(a, part) for a in args))
        case Proj(inner) | Un(_, inner):
            return replace(term, term=part(inner, ()))
        case Bind(_, groups, body):
            groups, bound = rebuilt_binders(groups, part)
            return replace(term, binders=groups, body=part(body, bound))
        case Let(name, type_, value, body):
            known = None if type_ is None else part(type_, ())
            return replace(term, type=known, value=part(value, ()), body=part(body, (name,)))
        case Bin(_, left, right):
            return replace(term, left=part(left, ()), right=part(right, ()))
        case Ascribe(inner, type_):
            return replace(term, term=part(inner, ()), type=part(type_, ()))
        case Anon(items) | Tuple(items):
            return replace(term, items=tuple(part(i, ()) for i in items))
    return term


def _argument(arg: Term | NamedArg, part: Part) -> Term | NamedArg:
    return replace(arg, value=part(arg.value, ())) if isinstance(arg, NamedArg) else part(arg, ())


def rebuilt_binders(
    groups: tuple[Binder, ...], part: Part
) -> tuple[tuple[Binder, ...], tuple[str, ...]]:
    """Binders with ``part`` in the place of each type, and the names they bind."""
    out: list[Binder] = []
    bound: tuple[str, ...] = ()
    for group in groups:
        out.append(group if group.type is None else replace(group, type=part(group.type, bound)))
        bound += group.names
    return tuple(out), bound


def parts(term: Term) -> list[tuple[Term, tuple[str, ...]]]:
    """The direct parts of ``term`` that are terms, each with what ``term`` binds in it."""
    found: list[tuple[Term, tuple[str, ...]]] = []

    def noted(part: Term, bound: tuple[str, ...]) -> Term:
        found.append((part, bound))
        return part

    rebuilt(term, noted)
    return found


def with_part(term: Term, place: int, new: Term) -> Term:
    """``term`` with another of its :func:`parts`."""
    places = count()
    return rebuilt(term, lambda part, _: new if next(places) == place else part)


def substitute(term: Term, values: Mapping[str, Term]) -> Term:
    """``term`` with free names replaced.

    A dotted name whose first part is replaced by a name keeps its tail (``p.W₁`` under
    ``p ↦ w.a0`` is ``w.a0.W₁``); by any other term, it becomes a projection of it. Names bound
    inside are left alone; the caller sees to it that no replacement is captured.
    """
    if not values:
        return term
    if isinstance(term, Ident):
        if term.name in values:
            return values[term.name]
        first, _, tail = term.name.partition(".")
        new = values.get(first)
        if isinstance(new, Ident):
            return replace(term, name=f"{new.name}.{tail}")
        return term if new is None else Proj(new, tail, span=term.span)

    def inside(part: Term, bound: tuple[str, ...]) -> Term:
        left = {k: v for k, v in values.items() if k not in bound} if bound else values
        return substitute(part, left)

    found = rebuilt(term, inside)
    if isinstance(found, App) and isinstance(found.fn, App):
        return replace(found, fn=found.fn.fn, args=found.fn.args + found.args)
    return found


def free_names(term: Term) -> set[str]:
    """The first parts of every name in ``term``; names it binds are left out."""
    if isinstance(term, Ident):
        return {term.name.split(".")[0]}
    return {n for part, bound in parts(term) for n in free_names(part) if n not in bound}


def head(term: Term | None) -> str:
    """The name that ``term`` is or applies; empty where there is none."""
    fn = term.fn if isinstance(term, App) else term
    return fn.name if isinstance(fn, Ident) else ""


def conjunction(terms: Iterable[Term]) -> Term:
    """``a ∧ b ∧ c``, to the right."""
    items = list(terms)
    out = items[-1]
    for term in reversed(items[:-1]):
        out = Bin("∧", term, out)
    return out


def lets(bound: Iterable[tuple[str, Term | None, Term]], body: Term) -> Term:
    """``let`` after ``let``, then ``body``."""
    for name, type_, value in reversed(list(bound)):
        body = Let(name, type_, value, body)
    return body


def split_lets(term: Term) -> tuple[list[tuple[str, Term | None, Term]], Term]:
    """What :func:`lets` is given for ``term``: names, types and values, and the term after them."""
    out = []
    while isinstance(term, Let):
        out.append((term.name, term.type, term.value))
        term = term.body
    return out, term


def conjuncts(term: _Joined) -> list[_Joined]:
    """``a ∧ b ∧ c``, written or typed, as a list."""
    out = []
    rest: Any = term
    while getattr(rest, "op", "") == "∧":
        out.append(rest.left)
        rest = rest.right
    return [*out, rest]
