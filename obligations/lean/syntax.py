"""Lean terms as they are written: what the printer prints and the reader reads.

A term here is syntax without types; :mod:`obligations.lean.elab` gives it a type or refuses it.
Every class is a frozen dataclass. ``span`` is where a read term stood and never takes part in
comparison, so that a printed and re-read term equals the one it came from.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Literal

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


def ident(name: str) -> Ident:
    """The name ``name``."""
    return Ident(name)


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


def substitute(term: Term, values: Mapping[str, Term]) -> Term:
    """``term`` with free names replaced.

    A dotted name whose first part is replaced by a name keeps its tail (``p.W₁`` under
    ``p ↦ w.a0`` is ``w.a0.W₁``); by any other term, it becomes a projection of it. Names bound
    inside are left alone; the caller sees to it that no replacement is captured.
    """
    if not values:
        return term
    match term:
        case Ident(name):
            if name in values:
                return values[name]
            head, dot, tail = name.partition(".")
            if dot and head in values:
                new = values[head]
                if isinstance(new, Ident):
                    return replace(term, name=f"{new.name}.{tail}")
                return Proj(new, tail, span=term.span)
            return term
        case Num() | Str() | Hole() | DotIdent() | Raw():
            return term
        case App(fn, args):
            new_fn = substitute(fn, values)
            new_args = tuple(_substitute_arg(a, values) for a in args)
            if isinstance(new_fn, App):
                return replace(term, fn=new_fn.fn, args=new_fn.args + new_args)
            return replace(term, fn=new_fn, args=new_args)
        case Proj(inner, _):
            return replace(term, term=substitute(inner, values))
        case Bind(_, binders, body):
            binders, values = substitute_binders(binders, values)
            return replace(term, binders=binders, body=substitute(body, values))
        case Let(name, type_, value, body):
            under = {k: v for k, v in values.items() if k != name}
            return replace(
                term,
                type=None if type_ is None else substitute(type_, values),
                value=substitute(value, values),
                body=substitute(body, under),
            )
        case Bin(_, left, right):
            return replace(term, left=substitute(left, values), right=substitute(right, values))
        case Un(_, inner):
            return replace(term, term=substitute(inner, values))
        case Ascribe(inner, type_):
            return replace(term, term=substitute(inner, values), type=substitute(type_, values))
        case Anon(items) | Tuple(items):
            return replace(term, items=tuple(substitute(i, values) for i in items))


def _substitute_arg(arg: Term | NamedArg, values: Mapping[str, Term]) -> Term | NamedArg:
    if isinstance(arg, NamedArg):
        return replace(arg, value=substitute(arg.value, values))
    return substitute(arg, values)


def substitute_binders(
    binders: tuple[Binder, ...], values: Mapping[str, Term]
) -> tuple[tuple[Binder, ...], Mapping[str, Term]]:
    """Replace in the types of ``binders``; the mapping that is left under them."""
    out = []
    for binder in binders:
        new_type = None if binder.type is None else substitute(binder.type, values)
        out.append(replace(binder, type=new_type))
        values = {k: v for k, v in values.items() if k not in binder.names}
    return tuple(out), values


def free_names(term: Term | NamedArg | Binder) -> set[str]:
    """The first parts of every name in ``term``; names it binds are left out."""
    match term:
        case Ident(name):
            return {name.split(".")[0]}
        case Bind(_, groups, body):
            found = free_names(body) - {n for g in groups for n in g.names}
            for group in groups:
                found |= set() if group.type is None else free_names(group.type)
            return found
        case Let(name, type_, value, body):
            found = free_names(value) | (free_names(body) - {name})
            return found | (set() if type_ is None else free_names(type_))
        case _:
            found = set()
            for child in children(term):
                found |= free_names(child)
            return found


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
