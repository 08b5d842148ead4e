"""Terms without what Lean looks through: for comparing two statements.

Bound names, binder grouping, notation, the order of independent ``let``s and closed arithmetic of
numerals are normalised away; nothing else is. Each of them can be kept, so that it can be said
which of them two statements differ in.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace

from obligations.errors import Span
from obligations.lean import syntax as s
from obligations.lean.prelude import PLAIN


@dataclass(frozen=True, slots=True)
class Through:
    """What is looked through."""

    names: bool = True
    grouping: bool = True
    notation: bool = True
    lets: bool = True
    arithmetic: bool = True

    def without(self) -> Iterator[tuple[str, Through]]:
        """Each single thing kept, with what it is called."""
        for f in fields(self):
            yield _CALLED[f.name], replace(self, **{f.name: False})


_CALLED = {
    "names": "bound names",
    "grouping": "binder grouping",
    "notation": "notation",
    "lets": "order of independent lets",
    "arithmetic": "literal arithmetic",
}

EVERYTHING = Through()


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A normalised term.

    Attributes
    ----------
    kind
        ``"name"``, ``"bound"``, ``"number"``, ``"text"``, ``"hole"``, ``"dot"``, ``"app"``,
        ``"named"``, ``"field"``, ``"op"``, ``"prefix"``, ``"∧"``, ``"ascription"``, ``"⟨⟩"``,
        ``"tuple"``, ``"raw"``, ``"token"``; a telescope and what is under it: ``"fun"``, ``"∀"``,
        ``"∃"``, ``"∑"``, ``"∏"``, ``"lets"``; ``"entry"`` of a telescope; ``"absent"``.
    label
        What it is called, or which operator, bracket or numeral it is.
    uid
        For an entry the variable it binds, for a bound variable that entry's.
    span
        Where it was written.
    """

    kind: str
    label: str
    parts: tuple[Node, ...] = ()
    uid: int = 0
    span: Span | None = None


TELESCOPES = frozenset({"fun", "∀", "∃", "∑", "∏", "lets"})
"""Kinds whose parts are entries and then a body."""

ABSENT = Node("absent", "")
"""A type or a value that is not written."""

_MERGED = frozenset({"fun", "∀", "∃"})


@dataclass(slots=True)
class Canon:
    """Normalises the terms of one declaration.

    ``resolve`` gives a free name the spelling it is compared by.
    """

    resolve: Callable[[str], str] = lambda name: name
    through: Through = EVERYTHING
    _uids: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def declaration(
        self,
        binders: tuple[s.Binder, ...],
        statement: s.Term | None,
        value: s.Term | None,
    ) -> Node:
        """A declaration as a telescope over its statement and its value."""
        entries, scope = self._entries(binders, {})
        type_ = ABSENT if statement is None else self.term(statement, scope)
        if value is None:
            return self._telescope("∀", entries, type_)
        body = self.term(value, scope)
        pair = Node("tuple", "", (type_, body))
        return Node("∀", "", (*entries, pair))

    def term(self, term: s.Term | s.NamedArg, scope: Mapping[str, int]) -> Node:
        """``term`` normalised; ``scope`` has the variables around it."""
        span = term.span
        match term:
            case s.Ident(name):
                return self._name(name, scope, span)
            case s.Num(value):
                return Node("number", str(value), (), 0, span)
            case s.Str(text):
                return Node("text", text, (), 0, span)
            case s.Hole(name):
                return Node("hole", name, (), 0, span)
            case s.DotIdent(name):
                return Node("dot", name, (), 0, span)
            case s.NamedArg(name, inner):
                return Node("named", name, (self.term(inner, scope),), 0, span)
            case s.App(fn, args):
                parts = (self.term(fn, scope), *(self.term(a, scope) for a in args))
                if parts[0].kind == "app":
                    # What stood at the head was `fun x => f a x`.
                    parts = (*parts[0].parts, *parts[1:])
                return Node("app", "", parts, 0, span)
            case s.Proj(inner, name):
                return Node("field", name, (self.term(inner, scope),), 0, span)
            case s.Un(op, inner):
                return Node("prefix", op, (self.term(inner, scope),), 0, span)
            case s.Ascribe(inner, type_):
                parts = (self.term(inner, scope), self.term(type_, scope))
                return Node("ascription", "", parts, 0, span)
            case s.Anon(items):
                return Node("⟨⟩", "", tuple(self.term(i, scope) for i in items), 0, span)
            case s.Tuple(items):
                return Node("tuple", "", tuple(self.term(i, scope) for i in items), 0, span)
            case s.Raw(tokens):
                return self._raw(tokens, scope, span)
            case s.Bin():
                return self._infix(term, scope)
            case s.Bind():
                return self._bind(term, scope)
            case s.Let():
                return self._lets(term, scope)

    # -- names -----------------------------------------------------------------------------

    def _name(self, name: str, scope: Mapping[str, int], span: Span | None) -> Node:
        uid = scope.get(name)
        if uid is not None:
            return Node("bound", name, (), uid, span)
        first, *fields_ = name.split(".")
        uid = scope.get(first)
        if uid is not None:
            node = Node("bound", first, (), uid, span)
            for part in fields_:
                node = Node("field", part, (node,), 0, span)
            return node
        name = self.resolve(name)
        if self.through.notation:
            name = PLAIN.get(name, name)
        return Node("name", name, (), 0, span)

    def _raw(self, tokens: tuple[str, ...], scope: Mapping[str, int], span: Span | None) -> Node:
        """Tokens outside the fragment; the variables around them are still variables."""
        parts = []
        for token in tokens:
            first, dot, rest = token.partition(".")
            uid = scope.get(first)
            if uid is None:
                parts.append(Node("token", token))
                continue
            parts.append(Node("bound", first, (), uid))
            if dot:
                parts.append(Node("token", dot + rest))
        return Node("raw", "", tuple(parts), 0, span)

    # -- operations ------------------------------------------------------------------------

    def _infix(self, term: s.Bin, scope: Mapping[str, int]) -> Node:
        op = term.op
        if op == "→" and self.through.notation:
            binder = s.Binder(("_",), term.left, "", span=term.left.span)
            return self._bind(s.Bind("∀", (binder,), term.right), scope, term.span)
        if op == "∧":
            items = tuple(self.term(i, scope) for i in s.conjuncts(term))
            return Node("∧", "", items, 0, term.span)
        left, right = self.term(term.left, scope), self.term(term.right, scope)
        if self.through.arithmetic and left.kind == right.kind == "number":
            value = _computed(op, int(left.label), int(right.label))
            if value is not None:
                return Node("number", value, (), 0, term.span)
        return Node("op", op, (left, right), 0, term.span)

    # -- binders ---------------------------------------------------------------------------

    def _entries(
        self, groups: tuple[s.Binder, ...], scope: Mapping[str, int]
    ) -> tuple[list[Node], dict[str, int]]:
        inner = dict(scope)
        out = []
        for number, group in enumerate(groups):
            bracket = group.kind
            if self.through.notation and bracket == "(":
                # `fun (x : T)` and `fun x : T`; a declaration's binders always have brackets.
                bracket = ""
            for name in group.names or ("_",):
                type_ = ABSENT if group.type is None else self.term(group.type, inner)
                default = () if group.default is None else (self.term(group.default, inner),)
                uid = next(self._uids)
                if name != "_":
                    inner[name] = uid
                label = bracket if self.through.names else f"{bracket}{name}"
                if not self.through.grouping:
                    label += f"|{number}"
                shown = replace(group, names=(name,))
                out.append(Node("entry", label, (type_, *default), uid, _Named.of(shown)))
        return out, inner

    def _bind(self, term: s.Bind, scope: Mapping[str, int], span: Span | None = None) -> Node:
        kind = term.quantifier
        entries, inner = self._entries(term.binders, scope)
        body = self.term(term.body, inner)
        return self._telescope(kind, entries, body, span or term.span)

    def _telescope(
        self, kind: str, entries: list[Node], body: Node, span: Span | None = None
    ) -> Node:
        parts = (*entries, body)
        if self.through.grouping and kind in _MERGED and body.kind == kind and not body.label:
            parts = (*entries, *body.parts)
        if kind == "fun" and self.through.notation:
            return _eta(parts, span)
        if len(parts) == 1:
            return body
        return Node(kind, "", parts, 0, span)

    def _lets(self, term: s.Let, scope: Mapping[str, int]) -> Node:
        inner = dict(scope)
        entries = []
        rest: s.Term = term
        while isinstance(rest, s.Let):
            type_ = ABSENT if rest.type is None else self.term(rest.type, inner)
            value = self.term(rest.value, inner)
            uid = next(self._uids)
            inner[rest.name] = uid
            label = "let" if self.through.names else f"let {rest.name}"
            at = _Named.of(s.Binder((rest.name,), rest.type, "", rest.value, span=rest.span))
            entries.append(Node("entry", label, (type_, value), uid, at))
            rest = rest.body
        body = self.term(rest, inner)
        if self.through.lets and len(entries) > 1:
            entries = _in_order(entries, body)
        return Node("lets", "", (*entries, body), 0, term.span)


@dataclass(frozen=True, slots=True)
class _Named(Span):
    """The place of an entry, with its binder."""

    binder: s.Binder | None = None

    @classmethod
    def of(cls, binder: s.Binder) -> _Named:
        span = binder.span or Span(0, 0)
        return cls(span.line, span.column, span.width, binder)


def binder_of(entry: Node) -> s.Binder | None:
    """The binder of one name that an entry was written as, its ``let`` value as the default."""
    return entry.span.binder if isinstance(entry.span, _Named) else None


def _computed(op: str, left: int, right: int) -> str | None:
    """The numeral of a closed operation, where it is one in ``Nat`` and in ``ℝ`` alike."""
    if max(left.bit_length(), right.bit_length()) > 4096:
        return None
    if op == "*":
        return str(left * right)
    if op == "+":
        return str(left + right)
    return str(left - right) if op == "-" and left >= right else None


def _eta(parts: tuple[Node, ...], span: Span | None) -> Node:
    """``fun x y => f x y`` as ``f``, from the last binder on."""
    *entries, body = parts
    while entries and body.kind == "app":
        last, uid = body.parts[-1], entries[-1].uid
        if last.kind != "bound" or last.uid != uid:
            break
        binder = binder_of(entries[-1])
        if binder is None or binder.kind not in ("", "("):
            break
        if any(mentions(p, uid) for p in body.parts[:-1]):
            break
        kept = body.parts[:-1]
        body = kept[0] if len(kept) == 1 else Node("app", "", kept, 0, body.span)
        entries.pop()
    return Node("fun", "", (*entries, body), 0, span) if entries else body


def mentions(node: Node, uid: int) -> bool:
    """Whether the variable ``uid`` occurs in ``node``."""
    return any(n.kind == "bound" and n.uid == uid for n in walk(node))


def walk(node: Node) -> Iterator[Node]:
    """``node`` and everything below it, from left to right."""
    stack = [node]
    while stack:
        found = stack.pop()
        yield found
        stack += reversed(found.parts)


# -- order of lets -----------------------------------------------------------------------------


def _in_order(entries: list[Node], body: Node) -> list[Node]:
    """``entries`` in an order that does not depend on the order of independent ones.

    Of those whose values mention no later one, the one of the least digest goes first; equal ones
    go by their first use.
    """
    own = {e.uid: i for i, e in enumerate(entries)}
    needs = [{own[n.uid] for n in walk(e) if n.kind == "bound" and n.uid in own} for e in entries]
    # Variables from outside have no names here, only the order in which they were bound.
    outer = {n.uid for e in (*entries, body) for n in walk(e) if n.kind == "bound"} - set(own)
    outer -= {n.uid for e in (*entries, body) for n in walk(e) if n.kind == "entry"}
    marks: dict[int, object] = {uid: ("outer", i) for i, uid in enumerate(sorted(outer))}
    digests = []
    for entry in entries:
        found = digest(entry, marks)
        marks[entry.uid] = ("let", found)
        digests.append(found)
    uses: dict[int, int] = {}
    for position, node in enumerate(walk(body)):
        if node.kind == "bound" and node.uid in own:
            uses.setdefault(own[node.uid], position)
    left = dict.fromkeys(range(len(entries)))
    out: list[Node] = []
    done: set[int] = set()
    while left:
        ready = [i for i in left if needs[i] <= done]
        first = min(ready, key=lambda i: (digests[i], uses.get(i, len(own) + 10**9)))
        out.append(entries[first])
        done.add(first)
        del left[first]
    return out


def digest(node: Node, marks: Mapping[int, object]) -> bytes:
    """A hash that two terms share when they are the same up to bound variables; no run has another.

    ``marks`` says what stands for the variables bound outside of ``node``.
    """
    known = dict(marks)
    depth = itertools.count()

    def hashed(*of: object) -> bytes:
        return hashlib.blake2b(repr(of).encode(), digest_size=8).digest()

    def visit(node: Node) -> bytes:
        if node.kind == "bound":
            return hashed("bound", known.get(node.uid, node.label))
        out = []
        for part in node.parts:
            out.append(visit(part))
            if part.kind == "entry":
                known[part.uid] = ("binder", next(depth))
        return hashed(node.kind, node.label, *out)

    return visit(node)


# -- equality ----------------------------------------------------------------------------------


def same(a: Node, b: Node, pairs: dict[int, int]) -> bool:
    """Whether two terms are the same; ``pairs`` has which variable stands for which."""
    own: dict[int, int] = {}
    stack = [(a, b)]
    while stack:
        a, b = stack.pop()
        if a.kind != b.kind or len(a.parts) != len(b.parts):
            return False
        if a.kind == "bound":
            if own.get(a.uid, pairs.get(a.uid)) != b.uid:
                return False
            continue
        if a.label != b.label:
            return False
        if a.kind in TELESCOPES:
            for x, y in zip(a.parts[:-1], b.parts[:-1], strict=True):
                own[x.uid] = y.uid
        stack += zip(a.parts, b.parts, strict=True)
    return True
