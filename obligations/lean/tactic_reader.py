"""The tactics of a proof as it is written, as far as they are terms in disguise.

``unfold``, ``intro``, ``exact``, ``refine``, ``have h := …`` and bullets of these are read;
every other tactic is kept as its words. That is enough for :mod:`obligations.lean.proof` to tell
whether a proof is a term.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from obligations.lean.declaration import Tactic
from obligations.lean.parse import parse_slice
from obligations.lean.source import FileDeclaration, Slice, trimmed

_WORD = re.compile(r"(exact|refine|have\s+[\w'₀-₉]+\s*:=)(?=\s|⟨|\()")
_BULLET = re.compile(r"[·.]\s+")
_BY = re.compile(r"by(?![\w'!?])")


def tactics(declaration: FileDeclaration) -> tuple[Tactic, ...]:
    """The proof of a theorem; a proof term is one ``exact``.

    A tactic begins where its line does, at the column of the first one; what is further to the
    right goes on with it.
    """
    at = declaration.body_at
    if at is None or declaration.body_kind != ":=":
        return ()
    code = at.of.code
    by = _BY.match(code, at.start, at.end)
    if by is None:
        return (_with_term("exact", at, at.start, at.end),)
    return tuple(_tactic(at, start, end) for start, end in _steps(at, by.end(), at.end))


def _steps(at: Slice, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The tactics between two positions: parted by ``;`` and by lines that begin at the column."""
    code = at.of.code
    start, _ = trimmed(code, start, end)
    if start >= end:
        return
    column = _column(code, start)
    begin = start
    depth = 0
    for match in re.compile(r"[(\[{⟨]|[)\]}⟩]|;|\n[ \t]*(?=\S)").finditer(code, start, end):
        token = match[0]
        if token in "([{⟨":
            depth += 1
        elif token in ")]}⟩":
            depth = max(0, depth - 1)
        elif depth == 0 and (token == ";" or _column(code, match.end()) <= column):
            if token == ";" and code[match.start() - 1 : match.start()] == "<":
                continue
            yield begin, match.start()
            begin = match.end()
    yield begin, end


def _column(code: str, position: int) -> int:
    return position - (code.rfind("\n", 0, position) + 1)


def _tactic(at: Slice, start: int, end: int) -> Tactic:
    code = at.of.code
    start, end = trimmed(code, start, end)
    bullet = _BULLET.match(code, start, end)
    if bullet is not None:
        first, *rest = [_tactic(at, a, b) for a, b in _steps(at, bullet.end(), end)] or [
            Tactic(("",))
        ]
        head, *pieces = first.pieces
        return Tactic((f"· {head}", *pieces), (*first.block, *rest))
    word = _WORD.match(code, start, end)
    if word is not None:
        return _with_term(" ".join(word[1].split()), at, word.end(), end)
    return Tactic((" ".join(code[start:end].split()),))


def _with_term(word: str, at: Slice, start: int, end: int) -> Tactic:
    code = at.of.code
    start, end = trimmed(code, start, end)
    if start >= end:
        return Tactic((word,))
    return Tactic((word, parse_slice("term", code, start, end, at.of.source, True)))
