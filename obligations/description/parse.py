"""Texts to syntax, and what is said of a text that does not parse."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache

from lark import Lark
from lark.exceptions import UnexpectedInput, UnexpectedToken
from lark.lexer import PatternStr

from obligations.description.model import Chain
from obligations.description.text import NetText, Rules
from obligations.errors import InputError, Source, Span, nearest, place
from obligations.resources import grammar

MAX_DEPTH = 50
"""Deepest nesting of parentheses that is read; what walks the terms later is recursive."""
MAX_DIGITS = 9
"""Longest number that is read."""


@cache
def _parser(debug: bool = False) -> Lark:
    """Both grammars in one LALR parser, built on first use; ``debug`` logs conflicts."""

    def beside(_base: object, path: str) -> tuple[str, str]:
        return path, grammar(path.removesuffix(".lark"))

    return Lark(
        grammar("net"),
        start=["net", "lone_chain"],
        parser="lalr",
        transformer=Rules(),
        import_paths=[beside],
        debug=debug,
    )


def parse_net_text(source: Source) -> NetText:
    """The syntax of a net description; an :class:`InputError` at the first thing amiss."""
    net = _parse(source, "net", source.text)
    assert isinstance(net, NetText)
    return net


def parse_chain_text(source: Source) -> Chain:
    """The syntax of a render chain that stands alone."""
    chain = _parse(source, "lone_chain", source.text)
    assert isinstance(chain, Chain)
    return chain


def _parse(source: Source, start: str, text: str) -> object:
    _limits(source)
    try:
        # The last line need not be ended.
        return _parser().parse(text + "\n", start=start)
    except UnexpectedInput as error:
        raise _explain(source, start, error) from None


_LIMITS = re.compile(r"#[^\n]*|\"[^\"\n]*\"|[()*\n]|(?<!\w)[0-9]+")


def _limits(source: Source) -> None:
    """Refuse what is empty, nested too deeply, or counts too high for what follows."""
    if not re.sub(r"#[^\n]*|\ufeff", "", source.text).strip():
        raise InputError(source, Span(1, 1), "there is nothing in this text")
    depth = factors = 0
    for match in _LIMITS.finditer(source.text):
        found = match.group()
        depth += (found == "(") - (found == ")")
        factors = 0 if found == "\n" else factors + (found == "*")
        if depth > MAX_DEPTH:
            message = f"parentheses are nested more than {MAX_DEPTH} deep"
        elif factors > MAX_DEPTH:
            message = f"a product has more than {MAX_DEPTH} factors"
        elif found[0] in "0123456789" and len(found) > MAX_DIGITS:
            message = f"a number has more than {MAX_DIGITS} digits"
        else:
            continue
        raise InputError(source, place(source.text, match.start(), len(found)), message)


# ---- what is said when a text does not parse ----

_WORDS = {
    "NAME": "a name",
    "LEAN": "a Lean name",
    "SECTION": "a name",
    "INT": "a number",
    "VALUE": "a value (%name)",
    "STRING": "a text in double quotes",
    "TEXT": "a text",
    "TITLE": "a title",
    "FAMILY": "'symmetric' or 'XLA'",
    "_NL": "the end of the line",
    "_COMMA": "','",
    "_TIMES": "'×'",
    "_READS": "'←'",
    "_DIVIDE": "'÷'",
    "_TO": "'→'",
    "$END": "the end of the text",
}
_SECTIONS = (
    *("net", "conventions", "options", "weights", "block", "layers"),
    *("forward", "capstone", "file", "artifact", "scale"),
)
_LEXEME = re.compile(r"[^\W\d][\w'.-]*|%\w*|\d+|\"[^\"\n]*\"?|\S")
_LISTED = 8
_SHOWN = 60


def _explain(source: Source, start: str, error: UnexpectedInput) -> InputError:
    """The error in the language's own words, at the text that is not understood.

    A line that begins with a misspelled or misplaced word is often read as something else first (a
    site, a read), and fails only at its second or third word. Then its first word is at fault.
    """
    text = source.text
    position = min(_position(text, error), len(text))
    line_start = text.rfind("\n", 0, position) + 1
    before = [m.group() for m in _LEXEME.finditer(text, line_start, position)]
    first = _LEXEME.search(text, line_start)
    if first is not None and before and len(before) <= 2 and before[-1] not in ("=", ":", "←"):
        if len(before) == 1 and before[0] in _keywords() and text[position : position + 1] in "=:":
            message = f"'{before[0]}' is a word of the language, and cannot be a name"
            return InputError(source, place(text, first.start(), len(before[0])), message)
        expected = _expected_after(text[:line_start], start)
        keywords = {w[1:-1] for w in expected if w.startswith("'")}
        word = first.group()
        misplaced = word in _keywords() and word not in keywords
        misspelled = word not in _keywords() and get_close_matches(word, keywords, 1, 0.7)
        if misplaced or misspelled:
            return _unexpected(source, first.start(), expected)
    return _unexpected(source, position, _expected(error))


def _unexpected(source: Source, position: int, expected: list[str]) -> InputError:
    """That the text at ``position`` is not what is expected there."""
    text = source.text
    listed = ""
    if expected and len(expected) <= _LISTED:
        listed = "expected " + " or ".join(
            [", ".join(expected[:-1]), expected[-1]] if len(expected) > 1 else expected
        )
    keywords = [w[1:-1] for w in expected if w.startswith("'")]
    rest = text[position:]
    if not re.sub(r"#[^\n]*", "", rest).strip():
        end = len(re.sub(r"(\s|#[^\n]*)*\Z", "", text))
        message = "the text ends too early"
        span = place(text, max(0, end - 1), 1)
        return InputError(source, span, f"{message}: {listed}" if listed else message)
    found = _LEXEME.match(text, position)
    if found is None:
        span = place(text, position, 1)
        if rest[0] not in "\r\n":
            message = f"unexpected blank U+{ord(rest[0]):04X}"
            return InputError(source, span, message, hint="write an ordinary space")
        message = "the line ends too early"
        return InputError(source, span, f"{message}: {listed}" if listed else message)
    word = found.group()
    if word.startswith('"') and (len(word) == 1 or not word.endswith('"')):
        return InputError(source, place(text, position, 1), "these quotes are not closed")
    shown = f"'{_shortened(word)}'" if word.isprintable() else f"character U+{ord(word[0]):04X}"
    hint = ""
    if word == "=" and "'←'" in expected:
        hint = "a value of the chain is written with %, as in %dn1 = …"
    elif word[0].isalpha():
        hint = nearest(word, keywords) if get_close_matches(word, keywords, 1, 0.5) else ""
        if not hint and word in _SECTIONS and _starts_line(text, position):
            hint = "the sections stand in the order " + ", ".join(_SECTIONS)
        if not hint and word in _keywords() and "a name" in expected:
            hint = f"'{word}' is a word of the language here, and not a name"
    message = f"unexpected {shown}" + (f": {listed}" if listed else "")
    return InputError(source, place(text, position, len(word)), message, hint=hint)


def _shortened(word: str) -> str:
    return word if len(word) <= _SHOWN else word[:_SHOWN] + "…"


def _starts_line(text: str, position: int) -> bool:
    """Whether only blanks stand before ``position`` on its line."""
    return not text[text.rfind("\n", 0, position) + 1 : position].strip()


def _position(text: str, error: UnexpectedInput) -> int:
    """Where the parser stopped; lark gives the end of a text no place of its own."""
    if isinstance(error, UnexpectedToken) and error.token.type == "$END":
        return len(text)
    return error.pos_in_stream if error.pos_in_stream is not None else len(text)


def _expected(error: UnexpectedInput) -> list[str]:
    """What could have stood there, in words."""
    parser = getattr(error, "interactive_parser", None)
    if parser is not None:
        return _words(parser.accepts())
    return _words(getattr(error, "allowed", None) or ())


def _expected_after(text: str, start: str) -> list[str]:
    """What can follow ``text``, which parses as a beginning."""
    parser = _parser().parse_interactive(text, start=start)
    try:
        parser.exhaust_lexer()
    except UnexpectedInput:
        return []
    return _words(parser.accepts())  # type: ignore[no-untyped-call]


def _words(terminals: Iterable[str]) -> list[str]:
    """Terminals as a reader calls them, names before keywords."""
    ignored = {"BLANK", "COMMENT"}
    patterns = _patterns()
    words = {_WORDS.get(t, f"'{patterns.get(t, t)}'") for t in map(str, terminals)}
    return sorted(words - {f"'{patterns[t]}'" for t in ignored}, key=lambda w: (w[0] == "'", w))


@cache
def _patterns() -> dict[str, str]:
    return {t.name: t.pattern.value for t in _parser().terminals}


@cache
def _keywords() -> frozenset[str]:
    """The words of the languages."""
    return frozenset(
        t.pattern.value
        for t in _parser().terminals
        if isinstance(t.pattern, PatternStr) and t.pattern.value[0].isalpha()
    )
