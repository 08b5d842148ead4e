"""Split any Lean 4 source into its commands and declarations.

Nothing is parsed here beyond what Lean's own tokens decide: comments (nested), strings, brackets,
and the words that begin a command. So every text splits, however broken, and the pieces in their
order are the text again. The terms inside a declaration are read when they are asked for
(:meth:`FileDeclaration.binders`, :meth:`FileDeclaration.statement`, :meth:`FileDeclaration.value`).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from obligations.errors import Source, read_source
from obligations.lean.parse import TextSpan, blank_comments, parse_slice, slice_tokens
from obligations.lean.syntax import Binder, Raw, Term
from obligations.lean.words import (
    ANY,
    BEFORE,
    BODILESS,
    CONSTRUCTED,
    DECLARING,
    FIELDED,
    GOING_ON,
    MODIFIERS,
    RESERVED,
)


@dataclass(frozen=True, slots=True, eq=False)
class Text:
    """A source prepared for reading.

    ``code`` is its text with the comments blanked out, ``comments`` where they are, and ``lines``
    where each line begins.
    """

    source: Source
    code: str = field(repr=False)
    comments: tuple[tuple[int, int], ...] = field(repr=False)
    lines: tuple[int, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Slice:
    """The stretch ``[start, end)`` of a source."""

    of: Text = field(repr=False)
    start: int
    end: int

    @property
    def text(self) -> str:
        """The stretch as it is written, comments included."""
        return self.of.source.text[self.start : self.end]

    @property
    def code(self) -> str:
        """The stretch with its comments blanked out."""
        return self.of.code[self.start : self.end]

    @property
    def span(self) -> TextSpan:
        """Where the stretch begins, and how many characters it has."""
        line = bisect_right(self.of.lines, self.start)
        column = self.start - self.of.lines[line - 1] + 1
        return TextSpan(line, column, self.end - self.start, self.end)


@dataclass(frozen=True, slots=True)
class Open:
    """``open A B``, ``open scoped A``, ``open A (b c)``, ``open A hiding b``, ``renaming b → c``.

    ``listed`` are the names in parentheses, ``hidden`` those after ``hiding``, and ``renamed`` the
    pairs after ``renaming``.
    """

    at: Slice
    namespaces: tuple[str, ...]
    scoped: bool = False
    listed: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    renamed: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Scope:
    """What is in force at a place: one namespace, ``open`` or ``variable``, and what was before."""

    before: Scope | None = field(default=None, repr=False)
    namespace: str = ""
    opened: Open | None = None
    variable: Slice | None = None

    def chain(self) -> list[Scope]:
        """This and what was before, outermost first."""
        found: list[Scope] = []
        scope: Scope | None = self
        while scope is not None:
            found.append(scope)
            scope = scope.before
        return found[::-1]


@dataclass(frozen=True, slots=True)
class Command:
    """A command that is no declaration: ``kind`` is its word (``namespace``, ``notation``, …).

    ``kind`` is ``"text"`` for a stretch before the first command that is not blank. ``name`` is
    what a ``namespace``, ``section`` or ``end`` names.
    """

    at: Slice
    kind: str
    name: str = ""


BodyKind = Literal["", ":=", "|", "where"]

_Parts = tuple["Slice | None", "Slice | None", BodyKind, "Slice | None", "Slice | None"]
"""Where the parts of a declaration are: its binders, type, body and tail."""


@dataclass(frozen=True, slots=True)
class FileDeclaration:
    """A declaration and its parts, each a stretch of the source or None where there is none.

    Attributes
    ----------
    at
        All of it, docstring and modifiers included.
    kind
        Its word: ``def``, ``theorem``, ``lemma``, ``structure``, …
    name, full_name
        As written (``""`` for an ``example`` or a nameless ``instance``), and with the namespaces
        around it.
    place
        Where the name stands; the word when there is no name.
    modifiers, attributes
        ``("private", "noncomputable")``, and ``("simp", "reducible")`` as written in ``@[…]``.
    binders_at, type_at, body_at, tail_at
        The binder groups, what follows the ``:``, the body after ``body_kind``, and what follows
        that (``where``, ``termination_by``, ``deriving`` …).
    scope
        What is in force where it stands; see :attr:`variables`.
    within
        What comes before it with an ``in``: ``set_option maxHeartbeats 0 in``.
    """

    at: Slice
    kind: str
    name: str
    full_name: str
    place: Slice
    modifiers: tuple[str, ...] = ()
    attributes: tuple[str, ...] = ()
    binders_at: Slice | None = None
    type_at: Slice | None = None
    body_kind: BodyKind = ""
    body_at: Slice | None = None
    tail_at: Slice | None = None
    scope: Scope = field(default_factory=Scope, repr=False)
    within: tuple[Slice, ...] = ()

    @property
    def variables(self) -> tuple[Slice, ...]:
        """What every ``variable`` in force declares, outermost first."""
        return tuple(s.variable for s in self.scope.chain() if s.variable is not None)

    def binders(self) -> tuple[Binder, ...]:
        """The binder groups; what is outside the fragment is ``Raw`` in them."""
        at = self.binders_at
        if at is None:
            return ()
        found = parse_slice("telescope", at.of.code, at.start, at.end, at.of.source, True)
        if isinstance(found, Raw):
            return (Binder((), found, "", span=found.span),)
        return found  # type: ignore[no-any-return]

    def statement(self) -> Term | None:
        """The type after the ``:``; what is outside the fragment is ``Raw`` in it."""
        return None if self.type_at is None else _term(self.type_at)

    def value(self) -> Term | None:
        """The body: a value, a proof term, or ``Raw`` tokens for ``by …``, equations, fields."""
        if self.body_at is None:
            return None
        if self.body_kind == ":=":
            return _term(self.body_at)
        return Raw(tokens(self.body_at), span=self.body_at.span)


@dataclass(frozen=True, slots=True)
class LeanFile:
    """A source and what it declares, each list in the order of the file.

    ``pieces`` tile it: their texts, joined, are the text.
    """

    source: Source
    declarations: tuple[FileDeclaration, ...]
    others: tuple[Command, ...]
    pieces: tuple[Slice, ...] = field(repr=False)


def tokens(at: Slice) -> tuple[str, ...]:
    """The tokens of a stretch, without comments and white space: what two proofs differ in."""
    return slice_tokens(at.of.code, at.start, at.end)


def _term(at: Slice) -> Term:
    return parse_slice("term", at.of.code, at.start, at.end, at.of.source, True)  # type: ignore[no-any-return]


def trimmed(code: str, start: int, end: int) -> tuple[int, int]:
    """A stretch without the blanks around it; all blank, it is empty."""
    while start < end and code[start].isspace():
        start += 1
    while end > start and code[end - 1].isspace():
        end -= 1
    return start, end


# ---- what is looked for ----

_WORD = r"[^\W\d][\w'!?]*"
_PART = rf"(?:{_WORD}|«[^»\n]*»)"
_NAME = re.compile(rf"{_PART}(?:\.(?:{_PART}|\d+))*")
_STRING = r"""(?<![\w'!?])r(?P<hashes>\#*)".*?(?:"(?P=hashes)|\Z)
    | "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)
    | (?<![\w'!?])'(?:[^'\\\n]|\\[^\n]{1,8}?)'
    | «[^»\n]*+»?"""
_LONGEST_PRELUDE = 4000  # How far the `in` of `open … in` is looked for.
_MAX_NAMESPACES = 200  # Deeper ones are still commands, but add nothing to a name.
_OPEN, _CLOSE = "([{⟨⦃", ")]}⟩⦄"

# What decides where commands begin.
_LANDMARK = re.compile(
    rf"""(?P<first>^[ \t]*+(?:@(?=\[)|(?!r\#*")\#?{_WORD}(?![\w'!?.«])))
    | (?P<open>[(\[{{⟨⦃]) | (?P<close>[)\]}}⟩⦄])
    | (?P<text>{_STRING})
    | (?P<reserved>(?<![\w'!?.«`])(?:{"|".join(sorted(RESERVED))})(?![\w'!?.»]))""",
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)
# What decides where the parts of a declaration begin.
_MARK = re.compile(
    rf"""(?P<text>{_STRING})
    | (?P<open>[(\[{{⟨⦃]) | (?P<close>[)\]}}⟩⦄])
    | (?P<sign>:=|=>|\|\||\|>|<\||::|[:|])
    | (?P<word>(?<![\w'!?.])(?:let|letI|let_fun|have|haveI|where|extends|termination_by
        |decreasing_by|deriving)(?![\w'!?.]))""",
    re.DOTALL | re.VERBOSE,
)
_NEXT = re.compile(rf"^[ \t]*+(?:{'|'.join(sorted(ANY))})(?![\w'!?.«])", re.MULTILINE)
_COMMA = re.compile(
    rf"(?P<text>{_STRING}) | (?P<open>[(\[{{⟨⦃]) | (?P<close>[)\]}}⟩⦄]) | (?P<comma>,)",
    re.DOTALL | re.VERBOSE,
)
# What may follow a body, at the start of a line.
_TAIL = re.compile(
    r"^[ \t]*+(termination_by|decreasing_by|decreasing_with|where|deriving)(?![\w'!?.])",
    re.MULTILINE,
)
_DERIVING = re.compile(r"(?<![\w'!?.«])(deriving)(?![\w'!?.»])")
_OPTION = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|\d+|→|->')
_COMMAND_WORD = re.compile(rf"\#?{_WORD}")
_SECOND_WORD = re.compile(r"\s+(?:inductive|abbrev)(?![\w'!?.])")
_PRIORITY = re.compile(r"\(\s*priority\b")
_SPACE = re.compile(r"\s*+")
_ENDS_OPEN = re.compile(
    r"(?:[:=]=|=>|↦|←|[,∧∨→↔+*∘|=(\[{⟨]|(?<![\w'!?])(?:by|do|then|else|from))\Z"
)


# ---- splitting ----


def load(path: str | Path) -> Source:
    """The text of a Lean file; see :func:`~obligations.errors.read_source`."""
    return read_source(path, ".lean")


def read(source: Source) -> LeanFile:
    """Split ``source``; no text is refused.

    Examples
    --------
    >>> file = read(Source("A.lean", "namespace A\\ntheorem b (n : Nat) : n = n := rfl\\nend A\\n"))
    >>> [(d.full_name, d.type_at.text, d.body_at.text) for d in file.declarations]
    [('A.b', 'n = n', 'rfl')]
    """
    return _Reader(_prepare(source)).read()


def _prepare(source: Source) -> Text:
    code, comments = blank_comments(source.text)
    if code.startswith("\ufeff"):
        code = " " + code[1:]
    lines = (0, *(match.end() for match in re.finditer("\n", code)))
    return Text(source, code, tuple(comments), lines)


@dataclass(slots=True)
class _Header:
    """What stands before a command's own word, and that word."""

    word: str = ""
    word_at: int = 0
    word_end: int = 0
    modifiers: list[str] = field(default_factory=list)
    attributes: list[str] = field(default_factory=list)
    within: list[tuple[int, int]] = field(default_factory=list)


class _Reader:
    """One reading of one text; gathers the parts of the :class:`LeanFile`."""

    def __init__(self, text: Text) -> None:
        self.text = text
        self.code = text.code
        self.declarations: list[FileDeclaration] = []
        self.others: list[Command] = []
        self.pieces: list[Slice] = []
        self.scope = Scope()
        # What each open `namespace`, `section` or `mutual` is called, and the scope before it.
        self.blocks: list[tuple[str, Scope]] = []
        self.names: Counter[str] = Counter()

    def slice(self, start: int, end: int) -> Slice:
        return Slice(self.text, start, end)

    def trimmed(self, start: int, end: int) -> Slice | None:
        """The stretch without the blanks around it, or None when it is all blank."""
        start, end = trimmed(self.code, start, end)
        return self.slice(start, end) if end > start else None

    def skip(self, position: int) -> int:
        match = _SPACE.match(self.code, position)
        return match.end() if match else position

    def read(self) -> LeanFile:
        starts = list(self.commands())
        begin = self.skip(0)
        first = starts[0][0] if starts else len(self.code)
        if begin < first and (at := self.trimmed(begin, first)):
            self.others.append(Command(at, "text"))
        done = 0
        for i, (start, header) in enumerate(starts):
            stop = starts[i + 1][0] if i + 1 < len(starts) else len(self.code)
            at = self.trimmed(start, stop) or self.slice(start, stop)
            at = self.slice(start, at.end)
            if at.start > done:
                self.pieces.append(self.slice(done, at.start))
            self.pieces.append(at)
            done = at.end
            self.command(at, header)
        if done < len(self.code):
            self.pieces.append(self.slice(done, len(self.code)))
        return LeanFile(
            self.text.source,
            tuple(self.declarations),
            tuple(self.others),
            tuple(self.pieces),
        )

    # ---- where commands begin ----

    def commands(self) -> Iterator[tuple[int, _Header]]:
        """Where each command begins (its docstring included), and what its header says."""
        found: list[tuple[int, _Header]] = []
        code = self.code
        depth = 0
        resume = 0  # Nothing before this position is looked at again.
        column = 0  # Where the command before this one began on its line.
        previous = "end"
        flush = False  # The declaration before this one goes on at the first column.
        for match in _LANDMARK.finditer(code):
            kind = match.lastgroup
            if kind == "open":
                depth += 1
                continue
            if kind == "close":
                depth = max(0, depth - 1)
                continue
            if kind in ("text", "hashes") or match.start() < resume:
                continue
            if kind == "first":
                word = match.group().lstrip(" \t")
                position = match.end() - len(word)
                here = position - match.start()
                if word == "@":
                    word = "@["
                if here and depth:
                    continue
                if word in RESERVED or word in DECLARING or word == "@[":
                    pass
                elif word in ANY or word.startswith("#"):
                    if here and (depth or (here > column and previous not in BODILESS)):
                        continue
                    after = self.skip(match.end())
                    if word == "deriving" and not code.startswith("instance", after):
                        continue
                elif here or depth or word in GOING_ON or flush:
                    continue
                elif found and self.goes_on(position, previous):
                    flush = True
                    continue
            else:
                word, position, here = match.group(), match.start(), column
                if depth:
                    continue
            header = self.header(position)
            start = position
            if found and found[-1][1].word not in ANY and self.ends_in(position):
                # `count_heartbeats in theorem …`: the words before belong to this command.
                start, unknown = found.pop()
                unknown.within.append((unknown.word_at, self.back(position)))
                unknown.within.extend(header.within)
                header.within = unknown.within
            else:
                start = self.docstring_before(position, found[-1][0] if found else 0)
            found.append((start, header))
            if header.word == "#exit":
                # Lean reads no further.
                break
            resume, depth, column, previous, flush = header.word_end, 0, here, header.word, False
        return iter(found)

    def back(self, position: int) -> int:
        """Where the text before ``position`` ends, blanks left aside."""
        while position > 0 and self.code[position - 1].isspace():
            position -= 1
        return position

    def ends_in(self, position: int) -> bool:
        """Whether the word before ``position`` is ``in``."""
        end = self.back(position)
        return self.code[max(0, end - 3) : end] in (" in", "\nin", "\tin", ")in", "]in")

    def goes_on(self, position: int, previous: str) -> bool:
        """Whether the text before an unknown word at the first column asks for more."""
        if previous not in DECLARING:
            return False
        end = self.back(position)
        return bool(_ENDS_OPEN.search(self.code, max(0, end - 8), end))

    def docstring_before(self, position: int, floor: int) -> int:
        """Where the docstring that ends right before ``position`` begins, or ``position``."""
        comments = self.text.comments
        i = bisect_left(comments, (position, position)) - 1
        gap = position
        while i >= 0 and comments[i][0] >= floor:
            start, end = comments[i]
            if end != gap and not self.code[end:gap].isspace():
                break
            if self.text.source.text.startswith("/--", start):
                return start
            gap = start
            i -= 1
        return position

    def header(self, position: int) -> _Header:
        """Read modifiers, attributes and ``… in`` up to the command's own word."""
        header = _Header()
        code = self.code
        while True:
            position = self.skip(position)
            if code.startswith("@[", position):
                end = self.bracket_end(position + 1)
                header.attributes += self.listed(position + 2, end - 1)
                position = end
                continue
            match = _COMMAND_WORD.match(code, position)
            if match is None:
                break
            word = match.group()
            if header.word_end and word not in ANY:
                break
            if word in MODIFIERS:
                header.modifiers.append(word)
                header.word, header.word_at, header.word_end = word, position, match.end()
                position = match.end()
                continue
            end = self.prelude_end(word, match.end())
            if end:
                header.within.append((position, end))
                position = end
                continue
            header.word, header.word_at, header.word_end = word, position, match.end()
            if word == "class" and (second := _SECOND_WORD.match(code, match.end())):
                header.word_end = second.end()
                header.word = " ".join(code[position : header.word_end].split())
            return header
        header.word_end = max(header.word_end, position)
        if not header.word:
            header.word_at = position
        return header

    def prelude_end(self, word: str, position: int) -> int:
        """The end of ``open A in``, ``set_option a b in``, ``variable (a) in``; 0 if not that."""
        if word not in BEFORE:
            return 0
        code = self.code
        following = _NEXT.search(code, position, position + _LONGEST_PRELUDE)
        end = following.start() if following else min(len(code), position + _LONGEST_PRELUDE)
        while True:
            position = self.skip(position)
            if position >= end:
                return 0
            if code[position] in _OPEN:
                position = self.bracket_end(position, end)
                continue
            if match := _OPTION.match(code, position):
                position = match.end()
                continue
            match = _NAME.match(code, position)
            if match is None:
                return 0
            if match.group() == "in":
                return match.end()
            if match.group() in ANY and match.group() != "scoped":
                return 0
            position = match.end()

    def nested(
        self, pattern: re.Pattern[str], start: int, end: int
    ) -> Iterator[tuple[re.Match[str], int]]:
        """What a pattern finds, and how many brackets are open after it."""
        depth = 0
        for match in pattern.finditer(self.code, start, end):
            depth += (match.lastgroup == "open") - (match.lastgroup == "close")
            yield match, depth

    def bracket_end(self, position: int, end: int | None = None) -> int:
        """After the bracket that closes the one at ``position``; ``end`` if none does."""
        end = len(self.code) if end is None else end
        found = self.nested(_COMMA, position, end)
        return next((match.end() for match, depth in found if depth == 0), end)

    def listed(self, start: int, end: int) -> list[str]:
        """The parts between commas of a bracket's inside, white space evened out."""
        parts: list[str] = []
        begin = start
        for match, depth in self.nested(_COMMA, start, max(start, end)):
            if match.lastgroup == "comma" and depth == 0:
                parts.append(self.code[begin : match.start()])
                begin = match.end()
        parts.append(self.code[begin:end])
        return [" ".join(part.split()) for part in parts if part.strip()]

    # ---- what each command is ----

    def command(self, at: Slice, header: _Header) -> None:
        word = header.word
        if word in DECLARING:
            self.declarations.append(self.declaration(at, header))
            return
        rest = self.slice(header.word_end, max(header.word_end, at.end))
        name = ""
        if word == "import":
            return
        if word == "open":
            opened = self.open(at, rest.start, rest.end)
            self.scope = Scope(self.scope, self.scope.namespace, opened)
            return
        if word == "variable":
            self.scope = Scope(self.scope, self.scope.namespace, variable=rest)
        elif word in ("namespace", "section", "mutual", "end"):
            found = _NAME.match(self.code, self.skip(rest.start), rest.end)
            name = found.group() if found else ""
            if word == "end":
                self.close(name)
            else:
                for part in _parts(name) or [""]:
                    self.blocks.append((part, self.scope))
                    self.names[part] += 1
                    if word == "namespace" and len(self.blocks) <= _MAX_NAMESPACES:
                        outer = self.scope.namespace
                        self.scope = Scope(self.scope, f"{outer}.{part}" if outer else part)
        self.others.append(Command(at, word or "text", name))

    def close(self, name: str) -> None:
        """Leave the blocks that ``end name`` ends; an ``end`` that ends nothing is passed over."""
        parts = _parts(name) or [""]
        if len(parts) > len(self.blocks):
            return
        if name and [block[0] for block in self.blocks[-len(parts) :]] != parts:
            # A file with an `end` missing: leave what is inside as well.
            if not self.names[parts[-1]]:
                return
            while self.blocks[-1][0] != parts[-1]:
                self.leave()
            parts = parts[-1:]
        for _ in parts:
            self.leave()

    def leave(self) -> None:
        name, self.scope = self.blocks.pop()
        self.names[name] -= 1

    def open(self, at: Slice, start: int, end: int) -> Open:
        """Read what follows the word ``open``."""
        names: list[str] = []
        listed: tuple[str, ...] = ()
        other: list[str] = []
        scoped, mode = False, ""
        position = self.skip(start)
        while position < end:
            if self.code[position] == "(":
                stop = self.bracket_end(position, end)
                listed = tuple(_NAME.findall(self.code, position, stop))
                position = self.skip(stop)
                continue
            match = _NAME.match(self.code, position, end)
            if match is None:
                position = self.skip(position + 1)
                continue
            word = match.group()
            position = self.skip(match.end())
            if word == "scoped":
                scoped = True
            elif word in ("hiding", "renaming"):
                mode = word
            elif word == "in":
                break
            else:
                (other if mode else names).append(word)
        pairs = tuple(zip(other[::2], other[1::2], strict=False)) if mode == "renaming" else ()
        hidden = tuple(other) if mode == "hiding" else ()
        return Open(at, tuple(names), scoped, listed, hidden, pairs)

    # ---- the parts of a declaration ----

    def declaration(self, at: Slice, header: _Header) -> FileDeclaration:
        code, end = self.code, at.end
        position = self.skip(header.word_end)
        if header.word == "instance" and _PRIORITY.match(code, position):
            position = self.skip(self.bracket_end(position, end))
        place = self.slice(header.word_at, header.word_end)
        name = ""
        found = _NAME.match(code, position, end) if header.word != "example" else None
        if found is not None:
            name, place = found.group(), self.slice(*found.span())
            position = found.end()
            if code.startswith(".{", position):
                position = self.bracket_end(position + 1, end)
        parts = self.parts(header.word, min(position, end), end)
        namespace = self.scope.namespace
        if name.startswith("_root_."):
            full_name = name.removeprefix("_root_.")
        else:
            full_name = f"{namespace}.{name}" if name and namespace else name
        within = tuple(self.slice(*stretch) for stretch in header.within)
        scope = self.scope
        for stretch in within:
            if stretch.code.startswith("open"):
                opened = self.open(stretch, stretch.start + len("open"), stretch.end)
                scope = Scope(scope, namespace, opened)
            elif stretch.code.startswith("variable"):
                rest = self.slice(stretch.start + len("variable"), self.back(stretch.end - 2))
                scope = Scope(scope, namespace, variable=rest)
        return FileDeclaration(
            at,
            header.word,
            name,
            full_name,
            place,
            tuple(header.modifiers),
            tuple(header.attributes),
            *parts,
            scope,
            within,
        )

    def parts(self, kind: str, start: int, end: int) -> _Parts:
        """Find the binders, the type and the body between the name and ``end``.

        The first ``:`` outside brackets begins the type. A ``:=`` ends it unless a ``let`` or
        ``have`` before it is still owed one.
        """
        owed = 0
        head_end = colon = body = -1  # Where binders and type end, the type and the body begin.
        body_kind: BodyKind = ""
        tail = -1
        equations, asked = False, -1
        for match, depth in self.nested(_MARK, start, end):
            group, sign = match.lastgroup, match.group()
            if depth > 0:
                continue
            if sign == ":":
                if colon < 0:
                    colon = match.end()
                    head_end = match.start() if head_end < 0 else head_end
            elif sign == ":=":
                if owed:
                    owed -= 1
                else:
                    body_kind, body = ":=", match.end()
            elif sign == "|":
                if kind not in CONSTRUCTED and match.end() > asked:
                    equations, asked = self.equations(match.end(), end)
                if kind in CONSTRUCTED or equations:
                    body_kind, body = "|", match.start()
            elif sign == "where":
                body_kind, body = "where", match.end()
            elif sign == "extends":
                head_end = match.start() if head_end < 0 else head_end
            elif sign in ("termination_by", "decreasing_by", "deriving"):
                tail = match.start()
            elif group == "word" and colon >= 0:
                owed += 1
            if body >= 0 or tail >= 0:
                stop = match.start()
                break
        else:
            stop = end
        if body >= 0:
            after = (_DERIVING if kind in FIELDED else _TAIL).search(self.code, body, end)
            tail = after.start(1) if after else -1
        last = tail if tail >= 0 else end
        return (
            self.trimmed(start, stop if head_end < 0 else head_end),
            self.trimmed(colon, stop) if colon >= 0 else None,
            body_kind,
            self.trimmed(body, last) if body >= 0 else None,
            self.trimmed(tail, end) if tail >= 0 else None,
        )

    def equations(self, position: int, end: int) -> tuple[bool, int]:
        """Whether the bar before ``position`` begins ``| pattern => …`` and no absolute value.

        The answer holds for every bar up to the second result.
        """
        for match, depth in self.nested(_MARK, position, end):
            if depth == 0 and match.group() in ("=>", ":="):
                return match.group() == "=>", match.start()
        return False, end


def _parts(name: str) -> list[str]:
    """The components of a dotted name, none for the empty one."""
    return re.findall(rf"{_PART}|\d+", name)
