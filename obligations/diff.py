"""Compare two tie files declaration by declaration: do they state the same?

Declarations are matched by full name; those without a partner are paired by likeness and reported
as renamed. White space, comments and docstrings never count. What Lean looks through without help
is looked through (see :mod:`obligations.lean.canon`), and nothing else.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise, takewhile, zip_longest
from typing import Any, Literal

from obligations.errors import Source, Span
from obligations.lean import (
    ASSUMED,
    DEFINITIONS,
    EVERYTHING,
    TELESCOPES,
    THEOREMS,
    Canon,
    Command,
    FileDeclaration,
    LeanFile,
    Node,
    Slice,
    TextSpan,
    Through,
    binder_of,
    canonical,
    gives_instance,
    read,
    resolve_name,
    rewriting,
    same,
    strip_comments,
    syntax as s,
    telescope,
    tokens,
    unproved,
    walk,
)
from obligations.ledger import Column, Table, markdown_lines, plain, unmarked
from obligations.ops import names

Verdict = Literal[
    "same", "other proof", "same up to", "statement differs", "only in A", "only in B"
]

SAID: Mapping[Verdict, str] = {
    "same": "same",
    "other proof": "same statement, other proof",
    "same up to": "same up to",
    "statement differs": "statement differs",
    "only in A": "only in A",
    "only in B": "only in B",
}
"""What a verdict says."""

ALIKE = 0.7
"""How alike two statements of different names must be to be taken for one that was renamed."""

_SHOWN = 160
_KEPT = 12


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in a side."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Snippet(Spot):
    """A piece of one side and where it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A smallest place in which two statements differ; a side is None where it has nothing there.

    ``note`` says what kind of place it is, where the pieces do not.
    """

    left: Snippet | None
    right: Snippet | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Pair:
    """A declaration of either side, or of both, and what was found.

    Attributes
    ----------
    left, right
        Full names; ``""`` where the side has none.
    places
        Where the names stand, in the same order.
    through
        For ``"same up to"``: what was looked through.
    differences
        For ``"statement differs"``: the smallest differing pieces.
    more
        How many more there are.
    notes
        What does not count as a difference: other attributes, another proof.
    rewrites
        Whether it is a command, or an instance, that changes what the text after it means.
    """

    left: str
    right: str
    places: tuple[Spot | None, Spot | None]
    verdict: Verdict
    through: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    more: int = 0
    notes: tuple[str, ...] = ()
    rewrites: bool = False

    @property
    def renamed(self) -> bool:
        """Whether the two sides call it differently."""
        return bool(self.left and self.right) and self.left != self.right

    @property
    def said(self) -> str:
        """The verdict in words."""
        if self.verdict == "same up to":
            return f"same up to {', '.join(self.through)}"
        return SAID[self.verdict]

    @property
    def agrees(self) -> bool:
        """Whether the right side has the left side's declaration, and it states the same.

        What only the right side has is no disagreement, unless it changes the meaning of other
        text; a renamed declaration is missing under the name that others cite.
        """
        if self.rewrites and self.verdict == "only in B":
            return False
        return self.verdict not in ("statement differs", "only in A") and not self.renamed


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two files compared."""

    left: str
    right: str
    pairs: tuple[Pair, ...]

    @property
    def ok(self) -> bool:
        """Whether no statement differs and nothing is missing."""
        return all(p.agrees for p in self.pairs)

    def as_json(self) -> Any:
        """Plain data, for ``--json``."""
        found = {
            "a": self.left,
            "b": self.right,
            "ok": self.ok,
            "declarations": [
                {
                    "a": p.left or None,
                    "b": p.right or None,
                    "a_at": p.places[0],
                    "b_at": p.places[1],
                    "verdict": p.verdict,
                    "renamed": p.renamed,
                    "up_to": p.through,
                    "differences": [
                        {"a": d.left, "b": d.right, "note": d.note} for d in p.differences
                    ],
                    "more_differences": p.more,
                    "notes": p.notes,
                }
                for p in self.pairs
            ],
        }
        return plain.plain(found)


# -- one side ----------------------------------------------------------------------------------


_Parts = tuple[tuple[s.Binder, ...], s.Term | None, s.Term | None]


@dataclass(eq=False, slots=True)
class _Side:
    """One file, its names, and its declarations' parts as they are asked for."""

    file: LeanFile
    known: frozenset[str]
    renamed: dict[str, str] = field(default_factory=dict)
    _read: dict[int, _Parts] = field(default_factory=dict)
    _tokens: dict[int, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Source) -> _Side:
        file = read(source)
        declared = {d.full_name for d in file.declarations if d.name}
        return cls(file, frozenset({*names(), *(canonical(n) for n in declared)}))

    def canon(self, declaration: FileDeclaration, through: Through) -> Node:
        def spelled(name: str) -> str:
            found = resolve_name(name, declaration.scope, self.known) or name
            old = self.renamed.get(found)
            if through.notation:
                return old or found
            # As it is written, under the name it had.
            return name if old is None else old.rpartition(".")[2]

        if id(declaration) not in self._read:
            value = declaration.value() if counts_value(declaration) else None
            parts = telescope(declaration), declaration.statement(), value
            self._read[id(declaration)] = parts
        return Canon(spelled, through).declaration(*self._read[id(declaration)])

    def tokens(self, declaration: FileDeclaration) -> tuple[str, ...]:
        """The tokens of what a declaration states."""
        if id(declaration) not in self._tokens:
            self._tokens[id(declaration)] = statement_tokens(declaration)
        return self._tokens[id(declaration)]


def counts_value(declaration: FileDeclaration) -> bool:
    """Whether a declaration's body belongs to what it states."""
    return declaration.kind not in THEOREMS and declaration.kind not in ASSUMED


def statement_tokens(declaration: FileDeclaration) -> tuple[str, ...]:
    """The tokens of what a declaration states."""
    body = (declaration.body_at, declaration.tail_at) if counts_value(declaration) else ()
    return _tokens_of(declaration.binders_at, declaration.type_at, *body)


def proof_tokens(declaration: FileDeclaration) -> tuple[str, ...]:
    """The tokens of a proof; empty where there is none."""
    if counts_value(declaration):
        return ()
    return _tokens_of(declaration.body_at, declaration.tail_at)


def _tokens_of(*slices: Slice | None) -> tuple[str, ...]:
    """The tokens of parts of a declaration, an empty one before each part."""
    return tuple(t for at in slices for t in ("", *(() if at is None else tokens(at))))


def _family(declaration: FileDeclaration) -> str:
    if declaration.kind in THEOREMS:
        return "theorem"
    return "definition" if declaration.kind in DEFINITIONS else declaration.kind


# -- comparing ---------------------------------------------------------------------------------


def compare(left: Source, right: Source, *, statements_only: bool = False) -> Comparison:
    """Compare two files; ``statements_only`` says nothing about proofs.

    No text is refused: what is outside the fragment that is read is compared by its tokens.
    """
    a, b = _Side.of(left), _Side.of(right)
    pairs, only_a, only_b = _matched(a.file.declarations, b.file.declarations)
    renamed = _renamed(a, only_a, b, only_b)
    for x, y in renamed:
        b.renamed[canonical(y.full_name)] = canonical(x.full_name)
    gone = {id(x) for x, _ in renamed} | {id(y) for _, y in renamed}
    partner = {id(x): y for x, y in (*pairs, *renamed)}
    out = []
    for x in a.file.declarations:
        if id(x) in partner:
            y = partner[id(x)]
            out.append(_pair(a, b, x, y, statements_only))
            if gives_instance(x) and _moved(x, y, (*pairs, *renamed)):
                out[-1] = replace(out[-1], verdict="statement differs", notes=(_MOVED,))
        elif id(x) not in gone:
            out.append(_one_sided(x, "only in A", _REWRITES if gives_instance(x) else ""))
    for y in only_b:
        if id(y) not in gone:
            out.append(_one_sided(y, "only in B", _REWRITES if gives_instance(y) else ""))
    out += _commands(a.file, b.file, (*pairs, *renamed))
    return Comparison(left.name, right.name, tuple(out))


_REWRITES = "the meaning of the text after it may differ: what it does is not followed"
_MOVED = f"it stands before other declarations: {_REWRITES}"

_Piece = FileDeclaration | Command


def _one_sided(x: _Piece, verdict: Literal["only in A", "only in B"], note: str = "") -> Pair:
    notes = (note,) if note else ()
    if verdict == "only in A":
        return Pair(_called(x), "", (_place(x), None), verdict, notes=notes, rewrites=bool(note))
    return Pair("", _called(x), (None, _place(x)), verdict, notes=notes, rewrites=bool(note))


def _moved(x: _Piece, y: _Piece, pairs: Sequence[tuple[FileDeclaration, FileDeclaration]]) -> bool:
    """Whether ``x`` comes before a declaration whose partner ``y`` comes after, or the reverse."""
    return any(
        (p.at.start < x.at.start) != (q.at.start < y.at.start) for p, q in pairs if p is not x
    )


def _commands(
    left: LeanFile, right: LeanFile, pairs: Sequence[tuple[FileDeclaration, FileDeclaration]]
) -> Iterator[Pair]:
    """What changes the meaning of text, where the other side does not have the same there."""
    waiting: dict[tuple[str, ...], list[Command]] = {}
    for y in rewriting(right):
        waiting.setdefault(tokens(y.at), []).append(y)
    for x in rewriting(left):
        found = waiting.get(tokens(x.at))
        if not found:
            yield _one_sided(x, "only in A", _REWRITES)
            continue
        y = found.pop(0)
        if _moved(x, y, pairs):
            called, places = _called(x), (_place(x), _place(y))
            yield Pair(called, called, places, "statement differs", notes=(_MOVED,), rewrites=True)
    for rest in waiting.values():
        for y in rest:
            yield _one_sided(y, "only in B", _REWRITES)


def _called(piece: _Piece) -> str:
    if isinstance(piece, Command):
        return _short(piece.at.code, 40)
    return piece.full_name or f"({piece.kind})"


def _place(piece: _Piece) -> Spot:
    span = piece.at.span if isinstance(piece, Command) else piece.place.span
    return Spot(span.line, span.column)


_Found = list[tuple[FileDeclaration, FileDeclaration]]


def _matched(
    left: Sequence[FileDeclaration], right: Sequence[FileDeclaration]
) -> tuple[_Found, list[FileDeclaration], list[FileDeclaration]]:
    """Pairs of one full name, the first with the first; and what is left of either side."""
    waiting: dict[str, list[FileDeclaration]] = {}
    for y in right:
        waiting.setdefault(_called(y), []).append(y)
    pairs, only = [], []
    for x in left:
        found = waiting.get(_called(x))
        if found:
            pairs.append((x, found.pop(0)))
        else:
            only.append(x)
    taken = {id(y) for _, y in pairs}
    return pairs, only, [y for y in right if id(y) not in taken]


def _renamed(
    a: _Side, left: Sequence[FileDeclaration], b: _Side, right: Sequence[FileDeclaration]
) -> _Found:
    """Pairs of unmatched declarations whose statements are alike enough, the likest first."""
    if not left or not right:
        return []
    bags_a = [_bag(a.tokens(x), x.name) for x in left]
    bags_b = [_bag(b.tokens(y), y.name) for y in right]
    scores = []
    for i, (x, p) in enumerate(zip(left, bags_a, strict=True)):
        for j, (y, q) in enumerate(zip(right, bags_b, strict=True)):
            short, long = sorted((p.total(), q.total()))
            # Even if all of the shorter one were in the longer one, they would not be alike.
            if _family(x) != _family(y) or 2 * short < ALIKE * (short + long):
                continue
            score = 2 * (p & q).total() / (short + long) if long else 1.0
            if score >= ALIKE:
                scores.append((score, -abs(i - j), i, j))
    out, used_a, used_b = [], set(), set()
    for _, _, i, j in sorted(scores, reverse=True):
        if i not in used_a and j not in used_b:
            used_a.add(i)
            used_b.add(j)
            out.append((left[i], right[j]))
    return out


def _bag(tokens: tuple[str, ...], name: str) -> Counter[str]:
    """The tokens of a statement and their neighbours, counted; its own name left out."""
    found = [t for t in tokens if t != name]
    return Counter(found) + Counter(f"{x} {y}" for x, y in pairwise(found))


def _pair(
    a: _Side, b: _Side, x: FileDeclaration, y: FileDeclaration, statements_only: bool
) -> Pair:
    notes = list(_attribute_notes(x, y))
    if not statements_only:
        sides = [side for side, d in (("A", x), ("B", y)) if unproved(d)]
        if sides:
            notes.append(f"the proof has sorry in it in {' and '.join(sides)}")
    proof = statements_only or _same_proof(x, y, b.renamed)
    make = partial(Pair, _called(x), _called(y), (_place(x), _place(y)))
    if _family(x) != _family(y):
        what = Difference(_word(x), _word(y), "another kind of declaration")
        return make("statement differs", differences=(what,), notes=tuple(notes))
    plain = not x.variables and not y.variables
    if plain and a.tokens(x) == b.tokens(y):
        return make("same" if proof else "other proof", notes=tuple(notes))
    if not proof:
        notes.append("another proof")
    left, right = a.canon(x, EVERYTHING), b.canon(y, EVERYTHING)
    if same(left, right, {}):
        through = tuple(
            word
            for word, kept in EVERYTHING.without()
            if not same(a.canon(x, kept), b.canon(y, kept), {})
        )
        if not through and plain and a.tokens(x) != _spelled_back(b.tokens(y), b.renamed):
            through = ("notation",)
        if through:
            return make("same up to", through, notes=tuple(notes))
        kept_notes = tuple(n for n in notes if n != "another proof")
        return make("same" if proof else "other proof", notes=kept_notes)
    found = list(_Walk(a, b).differences(left, right, {}))
    shown, more = tuple(found[:_KEPT]), max(0, len(found) - _KEPT)
    return make("statement differs", differences=shown, more=more, notes=tuple(notes))


def _word(declaration: FileDeclaration) -> Snippet:
    span = declaration.place.span
    return Snippet(span.line, span.column, declaration.kind)


def _same_proof(x: FileDeclaration, y: FileDeclaration, renamed: Mapping[str, str]) -> bool:
    left, right = proof_tokens(x), proof_tokens(y)
    return left == right or left == _spelled_back(right, renamed)


def _spelled_back(tokens: tuple[str, ...], renamed: Mapping[str, str]) -> tuple[str, ...]:
    """Tokens with renamed declarations called as on the left side."""
    short = {new.rpartition(".")[2]: old.rpartition(".")[2] for new, old in renamed.items()}
    if not short:
        return tokens
    out = []
    for token in tokens:
        first, dot, rest = token.partition(".")
        out.append(short.get(first, first) + dot + rest)
    return tuple(out)


def _attribute_notes(x: FileDeclaration, y: FileDeclaration) -> Iterator[str]:
    def marks(d: FileDeclaration) -> set[str]:
        # Lean asks for `noncomputable` where it is needed; it is no part of what is stated.
        words = set(d.modifiers) - {"noncomputable"}
        if d.kind not in THEOREMS:
            words.add(d.kind)
        return words | {f"@[{text}]" for text in d.attributes}

    left, right = marks(x), marks(y)
    if left - right:
        yield f"only in A: {', '.join(sorted(left - right))}"
    if right - left:
        yield f"only in B: {', '.join(sorted(right - left))}"


# -- smallest differing pieces -----------------------------------------------------------------


@dataclass(eq=False, slots=True)
class _Walk:
    """Walks two terms that differ, down to the smallest pieces that do."""

    a: _Side
    b: _Side

    def differences(self, a: Node, b: Node, pairs: dict[int, int]) -> Iterator[Difference]:
        if same(a, b, pairs):
            return
        if {a.kind, b.kind} == {"bound", "name"} and a.label == b.label:
            # The binder that one side lacks is a difference of its own.
            return
        if a.kind != b.kind or (a.label != b.label and a.kind != "entry"):
            yield self.whole(a, b)
        elif a.kind in TELESCOPES:
            yield from self.telescopes(a, b, pairs)
        elif a.kind == "∧":
            yield from self.sequences(a.parts, b.parts, pairs, "conjunct")
        elif a.kind == "raw":
            yield self.raw(a, b, pairs)
        elif a.kind == "app" and len(a.parts) != len(b.parts):
            if not same(a.parts[0], b.parts[0], pairs):
                yield self.whole(a, b)
            else:
                yield from self.sequences(a.parts[1:], b.parts[1:], pairs, "argument")
        elif len(a.parts) != len(b.parts) or not a.parts:
            yield self.whole(a, b)
        else:
            differing = [
                (x, y) for x, y in zip(a.parts, b.parts, strict=True) if not same(x, y, pairs)
            ]
            # The two sides share nothing but the operation: the piece is the whole.
            alone = a.kind in ("op", "app") and len(differing) == len(a.parts)
            if alone and all(_apart(x, y) for x, y in differing):
                yield self.whole(a, b)
                return
            for x, y in differing:
                yield from self.differences(x, y, pairs)

    def telescopes(self, a: Node, b: Node, pairs: dict[int, int]) -> Iterator[Difference]:
        """Entries, paired by place or by name, and then what stands under them."""
        known = dict(pairs)
        left, right = a.parts[:-1], b.parts[:-1]
        noun = "let" if a.kind == "lets" else "binder"
        if noun == "binder" and (order := self.reordered(left, right)) is not None:
            yield order
            by_name = {_entry_name(y): y for y in right}
            aligned: list[tuple[Node | None, Node | None]] = [
                (x, by_name[_entry_name(x)]) for x in left
            ]
        elif noun == "binder" and len(left) == len(right):
            aligned = list(zip(left, right, strict=True))
        else:
            aligned = self.by_name(left, right, known)
        for x, y in aligned:
            if x is None or y is None:
                yield self.one_sided(x, y, noun)
                continue
            if x.label != y.label:
                yield self.whole(x, y, "another bracket")
            elif not same(x, y, known):
                for p, q in zip(x.parts, y.parts, strict=False):
                    yield from self.differences(p, q, known)
            known[x.uid] = y.uid
        yield from self.differences(a.parts[-1], b.parts[-1], known)

    def reordered(self, left: Sequence[Node], right: Sequence[Node]) -> Difference | None:
        """The difference where the right side binds the same names in another order."""
        names_a, names_b = [_entry_name(x) for x in left], [_entry_name(y) for y in right]
        if names_a == names_b or sorted(names_a) != sorted(names_b):
            return None
        if len(set(names_a)) != len(names_a):
            return None
        first = next(i for i, (p, q) in enumerate(zip(names_a, names_b, strict=True)) if p != q)
        last = next(i for i in range(len(names_a) - 1, -1, -1) if names_a[i] != names_b[i])
        cut = slice(first, last + 1)
        return Difference(
            self.entries(left[cut], self.a), self.entries(right[cut], self.b), "order of binders"
        )

    def by_name(
        self, left: Sequence[Node], right: Sequence[Node], pairs: dict[int, int]
    ) -> list[tuple[Node | None, Node | None]]:
        """Entries of one name together; what is left over by its place among what is left."""
        names_b: dict[str, list[Node]] = {}
        for y in right:
            names_b.setdefault(_entry_name(y), []).append(y)
        found: dict[int, Node] = {}
        for x in left:
            options = names_b.get(_entry_name(x))
            if options:
                found[x.uid] = options.pop(0)
        rest_b = [y for ys in names_b.values() for y in ys]
        rest_a = [x for x in left if x.uid not in found]
        for x in rest_a if len(rest_a) == len(rest_b) else ():
            found[x.uid] = rest_b.pop(0)
        out: list[tuple[Node | None, Node | None]] = [(x, found.get(x.uid)) for x in left]
        return [*out, *((None, y) for y in rest_b)]

    def sequences(
        self, left: Sequence[Node], right: Sequence[Node], pairs: dict[int, int], noun: str
    ) -> Iterator[Difference]:
        """Items in order; one that has no like on the other side is only on one."""
        for x, y in _aligned(left, right, pairs):
            if x is None or y is None:
                yield self.one_sided(x, y, noun)
            else:
                yield from self.differences(x, y, pairs)

    def raw(self, a: Node, b: Node, pairs: dict[int, int]) -> Difference:
        """Token runs without what they begin and end with in common."""
        start = _in_common(a.parts, b.parts, pairs)
        stop = _in_common(a.parts[start:][::-1], b.parts[start:][::-1], pairs)
        return Difference(
            self.tokens(a, start, len(a.parts) - stop, self.a),
            self.tokens(b, start, len(b.parts) - stop, self.b),
            "outside the fragment that is read: compared by tokens",
        )

    # -- pieces ----------------------------------------------------------------------------

    def whole(self, a: Node, b: Node, note: str = "") -> Difference:
        return Difference(_snippet(a, self.a), _snippet(b, self.b), note)

    def one_sided(self, a: Node | None, b: Node | None, noun: str) -> Difference:
        left = None if a is None else _snippet(a, self.a)
        right = None if b is None else _snippet(b, self.b)
        return Difference(left, right, noun)

    def entries(self, nodes: Sequence[Node], side: _Side) -> Snippet | None:
        shown = [s for s in (_snippet(n, side) for n in nodes) if s is not None]
        if not shown:
            return None
        return Snippet(shown[0].line, shown[0].column, " ".join(x.text for x in shown))

    def tokens(self, node: Node, start: int, stop: int, side: _Side) -> Snippet | None:
        words = [n.label for n in node.parts]
        span = node.span
        if span is None or start >= stop:
            return None
        line, column = span.line, span.column
        if isinstance(span, TextSpan):
            text = side.file.source.text
            at = span.end - span.width
            for word in words[: start + 1]:
                found = text.find(word, at)
                at = found if found < 0 else found + len(word)
                if found < 0:
                    break
            else:
                at -= len(words[start])
                line = text.count("\n", 0, at) + 1
                column = at - text.rfind("\n", 0, at)
        return Snippet(line, column, _short(" ".join(words[start:stop])))


def _in_common(left: Sequence[Node], right: Sequence[Node], pairs: dict[int, int]) -> int:
    """How many nodes two sequences begin with in common."""
    both = takewhile(lambda x: same(*x, pairs), zip(left, right, strict=False))
    return len(list(both))


def _entry_name(entry: Node) -> str:
    binder = binder_of(entry)
    return binder.names[0] if binder is not None and binder.names else "_"


def _snippet(node: Node, side: _Side) -> Snippet | None:
    if node.kind == "absent":
        return None
    if node.kind == "entry":
        return _entry_snippet(node, side)
    span = node.span
    if span is None:
        inner = next((n.span for n in walk(node) if n.span is not None), None)
        span = inner or Span(1, 1)
    if not (isinstance(span, TextSpan) and 0 < span.end <= len(side.file.source.text)):
        return Snippet(span.line, span.column, node.label or node.kind)
    text = strip_comments(side.file.source.text[span.end - span.width : span.end])
    bare = node.kind not in ("tuple", "ascription") and text[:1] == "(" and text[-1:] == ")"
    if bare and not text[1:2].isspace():
        return Snippet(span.line, span.column + 1, _short(text[1:-1]))
    return Snippet(span.line, span.column, _short(text))


def _entry_snippet(entry: Node, side: _Side) -> Snippet:
    binder = binder_of(entry)
    assert binder is not None
    parts = [p for p in entry.parts if p.kind != "absent"]
    texts = [s.text for s in (_snippet(p, side) for p in parts) if s is not None]
    name = _entry_name(entry)
    if entry.label.startswith("let"):
        text = f"let {name} := {texts[-1] if texts else '…'}"
    else:
        close = {"(": ")", "{": "}", "[": "]", "⦃": "⦄"}.get(binder.kind, "")
        text = f"{binder.kind}{name} : {texts[0]}{close}" if texts else name
    span = entry.span or Span(1, 1)
    return Snippet(span.line, span.column, _short(text))


def _short(text: str, limit: int = _SHOWN) -> str:
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _leaves(node: Node) -> Counter[tuple[str, str]]:
    return Counter((n.kind, n.label) for n in walk(node) if not n.parts)


def _likeness(a: Node, b: Node) -> float:
    p, q = _leaves(a), _leaves(b)
    total = p.total() + q.total()
    return 2 * (p & q).total() / total if total else 1.0


def _apart(a: Node, b: Node) -> bool:
    """Whether nothing below two differing pieces is worth pointing at."""
    return a.kind != b.kind or not (a.parts and b.parts) or _likeness(a, b) < 0.5


def _aligned(
    left: Sequence[Node], right: Sequence[Node], pairs: dict[int, int]
) -> list[tuple[Node | None, Node | None]]:
    """The alignment of two sequences that matches most: the same items, then those most alike."""
    rows, columns = len(left), len(right)
    if rows * columns > 40_000:
        # Too many to compare each with each: item by item, and the rest at the end.
        return list(zip_longest(left, right))
    score = [[_score(x, y, pairs) for y in right] for x in left]
    best = [[0.0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            best[i][j] = max(best[i + 1][j], best[i][j + 1], score[i][j] + best[i + 1][j + 1])
    out: list[tuple[Node | None, Node | None]] = []
    i = j = 0
    while i < rows or j < columns:
        paired = i < rows and j < columns and score[i][j]
        if paired and best[i][j] == paired + best[i + 1][j + 1]:
            out.append((left[i], right[j]))
            i, j = i + 1, j + 1
        elif j == columns or (i < rows and best[i][j] == best[i + 1][j]):
            out.append((left[i], None))
            i += 1
        else:
            out.append((None, right[j]))
            j += 1
    return out


def _score(a: Node, b: Node, pairs: dict[int, int]) -> float:
    if same(a, b, pairs):
        return 2.0
    alike = _likeness(a, b)
    return alike if alike >= 0.4 else 0.0


# -- telling -----------------------------------------------------------------------------------


def named(comparison: Comparison) -> list[tuple[str, Pair]]:
    """Each pair with what it is called where the namespace that all share is left out."""
    full = [n for p in comparison.pairs if not p.rewrites for n in (p.left, p.right) if n]
    spaces = [n.rpartition(".")[0].split(".") for n in full]
    shared = 0
    while spaces and all(len(x) > shared and x[shared] == spaces[0][shared] for x in spaces):
        shared += 1
    own = len(".".join(spaces[0][:shared])) + 1 if shared and spaces[0][0] else 0
    out = []
    for p in comparison.pairs:
        cut = 0 if p.rewrites else own
        name = f"{p.left[cut:]} → {p.right[cut:]}" if p.renamed else (p.left or p.right)[cut:]
        out.append((name, p))
    return out


def table(pairs: Iterable[tuple[str, Pair]], *, notes: bool = False) -> Table:
    """A row for each of some :func:`named` pairs, with its notes if they are to stand there."""
    columns: tuple[Column[tuple[str, Pair]], ...] = (
        Column("declaration", lambda x: x[0], role="name", code=True),
        Column("verdict", lambda x: x[1].said, role="verdict"),
        Column("A", lambda x: x[1].places[0]),
        Column("B", lambda x: x[1].places[1]),
    )
    return Table.of(
        columns, pairs, ok=lambda x: x[1].agrees, notes=lambda x: x[1].notes if notes else ()
    )


def details(pair: Pair) -> Iterator[tuple[str, str, str]]:
    """All there is to say of a pair beside its verdict, a line each.

    A line is words, then a piece of a side if there is one, and which side it is of.
    """
    yield from ((note, "", "") for note in pair.notes)
    for d in pair.differences:
        yield f"{d.note}:" if d.note else "differs:", "", ""
        for word, side in (("A", d.left), ("B", d.right)):
            place = "nothing" if side is None else f"{side!s:8} "
            yield f"  {word}  {place}", "" if side is None else side.text, word
    if pair.more:
        yield f"and {pair.more} more", "", ""


def summary(comparison: Comparison) -> str:
    """The comparison in a line."""
    counts = Counter(p.verdict for p in comparison.pairs)
    said = [f"{counts[v]} {words}" for v, words in SAID.items() if counts[v]]
    renamed = sum(p.renamed for p in comparison.pairs)
    if renamed:
        said.append(f"{renamed} renamed")
    return ", ".join(said) or "no declarations"


def markdown(comparison: Comparison) -> str:
    """The comparison for a pull request: what is not the same, and the pieces that differ."""
    mark = "agree" if comparison.ok else "differ"
    out = [
        f"### `{unmarked(comparison.left)}` and `{unmarked(comparison.right)}` {mark}",
        "",
        f"{summary(comparison)}.",
    ]
    rows = [x for x in named(comparison) if x[1].verdict != "same" or x[1].renamed or x[1].notes]
    if rows:
        out += ["", *markdown_lines(table(rows, notes=True))]
    for name, pair in rows:
        if not pair.differences:
            continue
        out += ["", f"**`{unmarked(name)}`**", ""]
        for d in pair.differences:
            sides = [_side(word, s) for word, s in (("A", d.left), ("B", d.right))]
            out.append(f"- {f'{d.note}: ' if d.note else ''}{', '.join(sides)}")
        if pair.more:
            out.append(f"- and {pair.more} more")
    return "\n".join(out) + "\n"


def _side(word: str, snippet: Snippet | None) -> str:
    if snippet is None:
        return f"{word} nothing"
    fence = "``" if "`" in snippet.text else "`"
    return f"{word} {snippet!s} {fence}{snippet.text}{fence}"
