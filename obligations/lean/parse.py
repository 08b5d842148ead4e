"""Read Lean terms: ``grammar/lean.lark`` and the passes around it.

The lexer and the grammar are lark's (LALR). Between them stands one pass over the tokens that does
what a context-free grammar cannot: it ends the value of a ``let`` where the layout does, and turns
a stretch outside the fragment (``by …``, ``match …``, ``{x // p}``) into one opaque token. Read
strictly, such a stretch is an error with its place; read leniently it becomes a
:class:`~obligations.lean.syntax.Raw` and everything around it is still read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from obligations.errors import InputError, Source, Span, place
from obligations.lean.syntax import (
    Anon,
    App,
    Ascribe,
    Bin,
    Bind,
    Binder,
    DotIdent,
    Hole,
    Ident,
    Let,
    NamedArg,
    Num,
    Proj,
    Quantifier,
    Raw,
    Str,
    Term,
    Tuple,
    Un,
    children,
)
from obligations.resources import grammar

if TYPE_CHECKING:
    from lark import Lark

# lark's own types leave the place of a token and the parser's methods open.
_Token = Any
_Parser = Any

MAX_DEPTH = 200
"""How deep a term may nest: functions on terms recurse, a few Python frames per level."""

MAX_TOKENS = 200_000
"""How many tokens one term may have; the longest statement of a tie file has some thousands."""

MAX_LENGTH = 1_000_000
"""How many characters one term may have."""

_MAX_DIGITS = 4000  # Python refuses to read integers of more than 4300 digits.
_RETRIES = 24


@dataclass(frozen=True, slots=True)
class TextSpan(Span):
    """A span that also knows where it ends: ``text[end - width : end]`` is what it covers."""

    end: int = 0


def parse_term(
    text: str, source: Source | None = None, at: Span | None = None, *, lenient: bool = False
) -> Term:
    """The term that ``text`` spells.

    Parameters
    ----------
    text
        One Lean term, comments allowed.
    source, at
        The file ``text`` was cut from and the place of its first character there, for messages
        and spans; by default ``text`` is its own file.
    lenient
        Keep what lies outside the fragment as :class:`~obligations.lean.syntax.Raw` tokens
        instead of refusing it.

    Raises
    ------
    InputError
        When ``text`` is not a term of the fragment (never, when ``lenient``).
    """
    return _parse("term", text, source, at, lenient)  # type: ignore[no-any-return]


def parse_signature(
    text: str, source: Source | None = None, at: Span | None = None, *, lenient: bool = False
) -> tuple[tuple[Binder, ...], Term]:
    """The binders and the type of ``{c : Nat} (x y : Vec c) : Vec c``; see :func:`parse_term`."""
    result = _parse("signature", text, source, at, lenient)
    if isinstance(result, Raw):
        return (), result
    return result  # type: ignore[no-any-return]


# ---- from text to tokens ----

_OPEN = {
    "LPAR": "RPAR",
    "LBRACE": "RBRACE",
    "LBRACKET": "RBRACKET",
    "LSTRICT": "RSTRICT",
    "LANGLE": "RANGLE",
    "TIGHT": "RBRACKET",
}
_CLOSE = frozenset(_OPEN.values())
_SEPARATORS = frozenset({"COMMA", "COLON", "ASSIGN", "DARROW", "SEP"})
# What binds names, and the token that ends its binders.
_BINDING = {"FUN": "DARROW", "QUANTIFIER": "COMMA", "BIGOP": "COMMA", "LET": "ASSIGN"}
# A line that starts with one of these goes on with the term above it, whatever its column.
_CONTINUES = _CLOSE | {
    "IFF",
    "ARROW",
    "OR",
    "AND",
    "DARROW",
    "ASSIGN",
    "RELATION",
    "PLUS",
    "MINUS",
    "TIMES",
    "POWER",
    "COMPOSE",
    "POSTFIX",
    "PROJECTION",
    "COLON",
    "COMMA",
    "SEMICOLON",
    "RESERVED",
    "OTHER",
}


def strip_comments(text: str) -> str:
    """``text`` with every comment blanked out: same length, same lines, same columns.

    Block comments nest; one that is never closed reaches to the end. Comment signs inside string
    literals are left alone.
    """
    return blank_comments(text)[0]


def blank_comments(text: str) -> tuple[str, list[tuple[int, int]]]:
    """What :func:`strip_comments` gives, and where each comment starts and ends."""
    if "--" not in text and "/-" not in text:
        return text, []
    search = _COMMENT_OR_STRING.search
    out: list[str] = []
    found: list[tuple[int, int]] = []
    kept = position = 0
    while match := search(text, position):
        start = match.start()
        if match.lastgroup == "comment":
            position = comment_end(text, start)
            blank = "\n".join([" " * len(line) for line in text[start:position].split("\n")])
            out += (text[kept:start], blank)
            kept = position
            found.append((start, position))
        else:
            position = match.end()
    out.append(text[kept:])
    return "".join(out), found


def comment_end(text: str, start: int) -> int:
    """Where the comment that opens at ``start`` ends (after its last character)."""
    if text.startswith("--", start):
        end = text.find("\n", start)
        return len(text) if end < 0 else end
    depth = 0
    for match in _BLOCK_MARK.finditer(text, start):
        depth += 1 if match.group() == "/-" else -1
        if depth == 0:
            return match.end()
    return len(text)


_COMMENT_OR_STRING = re.compile(
    r"""(?P<comment>--|/-)"""
    r"""|(?<![\w'!?])r(?P<hashes>\#*)".*?(?:"(?P=hashes)|\Z)"""
    r"""|"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)"""
    r"""|(?<![\w'!?])'(?:"|\\")'""",
    re.DOTALL,
)
_BLOCK_MARK = re.compile(r"/-|-/")


def _lex(text: str, start: int, end: int, rule: str) -> tuple[list[_Token], _Parser]:
    """The tokens of ``text[start:end]``, and a parser for ``rule`` that has read none of them."""
    from lark import TextSlice

    parser: _Parser = _lark().parse_interactive(TextSlice(text, start, end), start=rule)
    return list(parser.lexer_thread.lex(parser.parser_state)), parser


def _arrange(tokens: list[_Token]) -> list[_Token]:
    """Write ``SEP`` where a ``let``'s value ends and fold what a keyword opens into ``RAW``."""
    out: list[_Token] = []
    # Open brackets (-1) and open lets (the column of the word), innermost last.
    open_: list[int] = []
    line = 0
    i, n = 0, len(tokens)
    while i < n:
        token = tokens[i]
        kind = token.type
        first = token.line != line
        line = token.end_line
        if open_ and open_[-1] >= 0:
            if kind == "SEMICOLON":
                open_.pop()
                token.type = "SEP"
            elif first and token.column <= open_[-1] and kind not in _CONTINUES:
                open_.pop()
                out.append(_token("SEP", token, token, ""))
        if kind in _OPEN:
            open_.append(-1)
        elif kind in _CLOSE:
            while open_ and open_.pop() >= 0:
                pass
        elif kind == "LET":
            open_.append(token.column)
        elif kind == "KEYWORD":
            stop = _reach(tokens, i, open_[-1] if open_ else -1)
            out.append(_raw(tokens[i:stop]))
            i, line = stop, tokens[stop - 1].end_line
            continue
        out.append(token)
        i += 1
    return out


def _reach(tokens: list[_Token], start: int, column: int) -> int:
    """Where the stretch that the keyword at ``start`` opens ends.

    ``column`` is that of the innermost open ``let``, or -1. A stretch reaches to the closing
    bracket around it, to the next line at the ``let``'s column, or to a comma that no quantifier
    inside it asks for. (A ``match`` has commas of its own.)
    """
    word = tokens[start].value

    def ends(i: int) -> bool:
        begins_line = tokens[i].line != tokens[i - 1].end_line
        if begins_line and tokens[i].column <= column:
            return True
        return column >= 0 and tokens[i].type == "SEMICOLON" and word != "by"

    # What is no English word is a quantifier (`∃!`, `Σ`), and asks for a comma itself.
    asked = int(not word.isascii())
    stops = frozenset() if word == "match" else frozenset({"COMMA"})
    return _segment_end(tokens, start + 1, stops, asked, ends=ends)


def _token(kind: str, first: _Token, last: _Token, value: object) -> _Token:
    from lark import Token

    made: _Token = Token(
        kind,
        "",
        first.start_pos,
        first.line,
        first.column,
        last.end_line,
        last.end_column,
        last.end_pos,
    )
    made.value = value
    return made


def _raw(tokens: Sequence[_Token]) -> _Token:
    """One opaque token for ``tokens``; its value is the tuple of their texts."""
    texts: list[str] = []
    for token in tokens:
        if token.type == "RAW":
            texts += token.value
        elif token.value:
            texts.append(token.value)
    return _token("RAW", tokens[0], tokens[-1], tuple(texts))


# ---- from tokens to terms ----


def _parse(rule: str, text: str, source: Source | None, at: Span | None, lenient: bool) -> Any:
    source = source or Source("<term>", text)
    # Padding puts the text at its place in the file, as the lexer and the layout see it.
    pad = "\n" * (at.line - 1) + " " * (at.column - 1) if at else ""
    return parse_slice(
        rule, pad + strip_comments(text), len(pad), None, source, lenient, shift=-len(pad)
    )


def parse_slice(
    rule: str,
    text: str,
    start: int,
    end: int | None,
    source: Source,
    lenient: bool,
    *,
    shift: int = 0,
) -> Any:
    """Parse ``text[start:end]``, which holds no comments, by ``rule`` of the grammar.

    Gives a term, a tuple of binders and a term, or a tuple of binders, for the rules ``term``,
    ``signature`` and ``telescope``; when ``lenient``, a lone ``Raw`` where nothing could be read.
    """
    end = len(text) if end is None else end
    if end - start > MAX_LENGTH:
        if lenient:
            return Raw(tuple(text[start:end].split()))
        raise InputError(source, place(text, start), f"a term of more than {MAX_LENGTH} characters")
    tokens, parser = _lex(text, start, end, rule)
    if shift:
        for token in tokens:
            token.start_pos += shift
            token.end_pos += shift
    if not tokens:
        if lenient:
            return Raw(())
        raise InputError(source, place(text, start), "a term is expected here")
    whole = _raw(tokens) if lenient else None
    if fault := _too_big(tokens):
        if whole is not None:
            return _BUILD.raw([whole])
        raise InputError(source, _span(fault[0]), fault[1])
    tokens = _arrange(tokens)
    if whole is None:
        _refuse_opaque(tokens, source)
    for _ in range(_RETRIES):
        try:
            result = _feed(parser, tokens)
        except _Unexpected as error:
            if whole is None:
                raise _explained(error, tokens, source) from None
            smaller = _fold(tokens, error.at)
            if smaller is None:
                break
            tokens = smaller
            parser = _lark().parse_interactive("", start=rule)
            continue
        if len(tokens) > MAX_DEPTH and (deep := _too_deep(result)):
            if whole is None:
                raise InputError(source, deep, f"nested more than {MAX_DEPTH} deep")
            break
        return result
    return _BUILD.raw([whole])


class _Unexpected(Exception):
    """``tokens[at]`` cannot follow what is before it; ``expected`` could."""

    def __init__(self, at: int, expected: Collection[str] = ()) -> None:
        self.at = at
        self.expected = expected


def _feed(parser: _Parser, tokens: list[_Token]) -> Any:
    """What ``parser`` builds from ``tokens``."""
    from lark import UnexpectedToken

    at = 0
    try:
        for token in tokens:
            parser.feed_token(token)
            at += 1
        return parser.feed_eof(tokens[-1])
    except UnexpectedToken:
        raise _Unexpected(at, parser.accepts()) from None
    except _Outside as error:
        at = next(i for i, token in enumerate(tokens) if token is error.token)
        raise _Unexpected(at) from None


def _refuse_opaque(tokens: list[_Token], source: Source) -> None:
    """Raise the error for the first of ``tokens`` that only a lenient reader keeps."""
    for i, token in enumerate(tokens):
        if token.type == "RAW":
            word, shown = token.value[0], f"{token.value[0]} …"
        elif token.type == "OPAQUE":
            word = shown = token.value
        elif token.type == "LPAR" and i + 1 < len(tokens) and tokens[i + 1].type == "RPAR":
            word = shown = "()"
        else:
            continue
        message = f"'{shown}' is outside the fragment of Lean that is read here"
        raise InputError(source, _span(token, len(word)), message)


def slice_tokens(text: str, start: int, end: int) -> tuple[str, ...]:
    """The tokens of ``text[start:end]``, which holds no comments."""
    if end - start > MAX_LENGTH:
        return tuple(text[start:end].split())
    return tuple([token.value for token in _lex(text, start, end, "outside")[0]])


def _too_big(tokens: list[_Token]) -> tuple[_Token, str] | None:
    if len(tokens) > MAX_TOKENS:
        return tokens[MAX_TOKENS], f"a term of more than {MAX_TOKENS} tokens"
    depth = 0
    for token in tokens:
        if token.type in _OPEN:
            depth += 1
            if depth > MAX_DEPTH:
                return token, f"nested more than {MAX_DEPTH} deep"
        elif token.type in _CLOSE:
            depth -= 1
    return None


def _too_deep(result: Any) -> Span | None:
    """The place of a node more than ``MAX_DEPTH`` below the top, if there is one."""
    parts = result if isinstance(result, tuple) else (result,)
    level = [n for part in parts for n in (part if isinstance(part, tuple) else (part,))]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in children(node)]
        if not level:
            return None
    return level[0].span or Span(1, 1)


def _explained(error: _Unexpected, tokens: list[_Token], source: Source) -> InputError:
    wanted = sorted(kind for kind in _DESCRIBED if kind in error.expected)
    hint = "expected here: " + ", ".join(_DESCRIBED[kind] for kind in wanted) if wanted else ""
    if error.at >= len(tokens):
        last = tokens[-1]
        end = Span(last.end_line, last.end_column)
        return InputError(source, end, "the term ends too early", hint=hint)
    token = tokens[error.at]
    if token.type == "SEP":
        return InputError(source, _span(token), "the layout ends the `let` here", hint=hint)
    return InputError(source, _span(token), f"unexpected '{token.value}'", hint=hint)


_DESCRIBED = {
    "ARROW": "an operator",
    "ASSIGN": "':='",
    "COLON": "':'",
    "COMMA": "','",
    "DARROW": "'=>'",
    "NAME": "a name",
    "NUMERAL": "a term",
    "RANGLE": "'⟩'",
    "RBRACE": "'}'",
    "RBRACKET": "']'",
    "RPAR": "')'",
    "SEP": "a new line or ';'",
}


def _fold(tokens: list[_Token], at: int) -> list[_Token] | None:
    """``tokens`` with the smallest stretch around the unexpected ``tokens[at]`` made opaque.

    First choice is the bracket that opens there; then what a binder opens, if its binders are at
    fault; then what stands between two separators; then the brackets around it. None when all of
    it is one opaque token already.
    """
    if at < len(tokens) and tokens[at].type in _OPEN and tokens[at].type != "TIGHT":
        return _replaced(tokens, at, min(_segment_end(tokens, at + 1) + 1, len(tokens)))
    opener, binder, after = -1, -1, 0
    depth = 0
    ended: set[str] = set()
    for i in range(min(at, len(tokens)) - 1, -1, -1):
        kind = tokens[i].type
        if kind in _CLOSE:
            depth += 1
        elif kind in _OPEN:
            if depth == 0:
                opener = i
                break
            depth -= 1
        elif depth == 0:
            if kind in _BINDING and binder < 0 and _BINDING[kind] not in ended:
                binder = i
            if kind in _SEPARATORS:
                ended.add(kind)
                after = max(after, i + 1)
    after = max(after, opener + 1)
    close = _segment_end(tokens, at)
    if binder >= 0:
        asked = tokens[binder].type in ("QUANTIFIER", "BIGOP")
        end = _segment_end(
            tokens, binder + 1, frozenset({"COMMA", "SEP"}), asked, tokens[binder].type == "LET"
        )
        return _replaced(tokens, binder, max(end, min(at + 1, close)))
    end = _segment_end(tokens, at, _SEPARATORS)
    if end > after and not (end == after + 1 and tokens[after].type == "RAW"):
        return _replaced(tokens, after, end)
    if opener >= 0:
        return _replaced(tokens, opener, min(close + 1, len(tokens)))
    if len(tokens) == 1 and tokens[0].type == "RAW":
        return None
    return _replaced(tokens, 0, len(tokens))


def _segment_end(
    tokens: list[_Token],
    start: int,
    stops: frozenset[str] = frozenset(),
    commas: int = 0,
    lets: int = 0,
    ends: Callable[[int], bool] = lambda i: False,
) -> int:
    """The first token from ``start`` on that closes the bracket around it or is one of ``stops``.

    ``commas`` and ``lets`` say how many commas and ``SEP`` belong to what is being skipped; within
    no bracket, the first token that ``ends`` it is as good.
    """
    depth = 0
    for i in range(start, len(tokens)):
        kind = tokens[i].type
        if depth == 0 and ends(i):
            return i
        if kind in _OPEN:
            depth += 1
        elif kind in _CLOSE:
            if depth == 0:
                return i
            depth -= 1
        elif depth == 0:
            if kind in ("QUANTIFIER", "BIGOP"):
                commas += 1
            elif kind == "LET":
                lets += 1
            elif kind == "COMMA" and commas:
                commas -= 1
            elif kind == "SEP" and lets:
                lets -= 1
            elif kind in stops:
                return i
    return len(tokens)


def _replaced(tokens: list[_Token], start: int, end: int) -> list[_Token]:
    return [*tokens[:start], _raw(tokens[start:end]), *tokens[end:]]


def _span(token: _Token, width: int | None = None) -> TextSpan:
    width = token.end_pos - token.start_pos if width is None else width
    return TextSpan(token.line, token.column, width, token.end_pos)


_ASCII = {
    "->": "→",
    "<->": "↔",
    "/\\": "∧",
    "\\/": "∨",
    "<=": "≤",
    ">=": "≥",
}
_QUANTIFIERS: dict[str, Quantifier] = {
    "λ": "fun",
    "fun": "fun",
    "∀": "∀",
    "forall": "∀",
    "∃": "∃",
    "exists": "∃",
    "∑": "∑",
    "∏": "∏",
}


class _Outside(Exception):
    """What the grammar accepts and Lean does not; carries the token at fault."""

    def __init__(self, token: _Token) -> None:
        self.token = token


class _Build:
    """What each rule of the grammar builds from its parts, by the rule's name."""

    # The parts of a rule are tokens and built nodes; lark gives no types for them.

    def _over(self, first: Any, last: Any) -> TextSpan:
        a = first.span if hasattr(first, "span") else _span(first)
        end = (last.span if hasattr(last, "span") else _span(last)).end
        return TextSpan(a.line, a.column, end - a.end + a.width, end)

    def name(self, parts: Any) -> Term:
        (token,) = parts
        if token == "_":
            return Hole(span=_span(token))
        return Ident(str(token), span=_span(token))

    def numeral(self, parts: Any) -> Term:
        if len(parts[0]) > _MAX_DIGITS:
            return Raw((str(parts[0]),), span=_span(parts[0]))
        return Num(int(parts[0]), span=_span(parts[0]))

    def string(self, parts: Any) -> Term:
        return Str(str(parts[0])[1:-1], span=_span(parts[0]))

    def hole(self, parts: Any) -> Term:
        return Hole(str(parts[0]), span=_span(parts[0]))

    def dotted(self, parts: Any) -> Term:
        return DotIdent(str(parts[0])[1:], span=_span(parts[0]))

    def opaque(self, parts: Any) -> Term:
        return Raw((str(parts[0]),), span=_span(parts[0]))

    def raw(self, parts: Any) -> Term:
        return Raw(parts[0].value, span=_span(parts[0]))

    def paren(self, parts: Any) -> Term:
        left, term, right = parts
        span = self._over(left, right)
        if isinstance(term, Raw):
            return Raw(("(", *term.tokens, ")"), span=span)
        # The node was made a moment ago and nothing else has seen it.
        object.__setattr__(term, "span", span)
        return term  # type: ignore[no-any-return]

    def ascription(self, parts: Any) -> Term:
        left, term, _, type_, right = parts
        return Ascribe(term, type_, span=self._over(left, right))

    def pair(self, parts: Any) -> Term:
        left, term, _, terms, right = parts
        return Tuple((term, *terms), span=self._over(left, right))

    def unit(self, parts: Any) -> Term:
        return Raw(("(", ")"), span=self._over(*parts))

    def anonymous(self, parts: Any) -> Term:
        items = tuple(parts[1]) if len(parts) == 3 else ()
        return Anon(items, span=self._over(parts[0], parts[-1]))

    def one(self, parts: Any) -> list[Any]:
        return [parts[0]]

    def more(self, parts: Any) -> list[Any]:
        parts[0].append(parts[-1])
        return parts[0]  # type: ignore[no-any-return]

    def application(self, parts: Any) -> Term:
        fn, args = parts
        span = self._over(fn, args[-1])
        if isinstance(fn, App):
            return App(fn.fn, (*fn.args, *args), span=span)
        return App(fn, tuple(args), span=span)

    def named(self, parts: Any) -> NamedArg:
        left, name, _, value, right = parts
        return NamedArg(str(name), value, span=self._over(left, right))

    def infix(self, parts: Any) -> Term:
        left, op, right = parts
        name = _ASCII.get(op, str(op))
        return Bin(name, left, right, span=self._over(left, right))

    def arrow(self, parts: Any) -> Term:
        left, _, right = parts
        span = self._over(left, right)
        names = _ascribed_names(left)
        if names:
            binder = Binder(names, left.type, "(", span=left.span)
            return Bind("∀", (binder,), right, span=span)
        return Bin("→", left, right, span=span)

    def pi(self, parts: Any) -> Term:
        binder, _, right = parts
        return Bind("∀", (binder,), right, span=self._over(binder, right))

    def prefix(self, parts: Any) -> Term:
        op, term = parts
        return Un(str(op), term, span=self._over(op, term))

    def postfix(self, parts: Any) -> Term:
        term, op = parts
        return Un(str(op), term, span=self._over(term, op))

    def projection(self, parts: Any) -> Term:
        term, field = parts
        span = self._over(term, field)
        for name in re.findall(r"\.(«[^»]*»|[^.]+)", str(field)):
            term = Proj(term, name, span=span)
        return term  # type: ignore[no-any-return]

    def binding(self, parts: Any) -> Term:
        word, binders, _, body = parts
        return Bind(_QUANTIFIERS[str(word)], binders, body, span=self._over(word, body))

    def let(self, parts: Any) -> Term:
        span = self._over(parts[0], parts[-1])
        type_ = parts[3] if len(parts) == 8 else None
        return Let(str(parts[1]), type_, parts[-3], parts[-1], span=span)

    def binders(self, parts: Any) -> tuple[Binder, ...]:
        groups = parts[0]
        if len(parts) == 1:
            return tuple(groups)
        type_ = parts[2]
        if any(group.kind for group in groups):
            # `fun (x) y : T => …` is not Lean: the type would belong to `y` alone.
            raise _Outside(parts[1])
        names = tuple(group.names[0] for group in groups)
        return (Binder(names, type_, "", span=self._over(groups[0], type_)),)

    def bare(self, parts: Any) -> Binder:
        return Binder((str(parts[0]),), None, "", span=_span(parts[0]))

    def untyped(self, parts: Any) -> Binder:
        left, names, right = parts
        return Binder(tuple(map(str, names)), None, str(left), span=self._over(left, right))

    def typed(self, parts: Any) -> Binder:
        left, names, _, type_ = parts[:4]
        default = parts[5] if len(parts) == 7 else None
        span = self._over(left, parts[-1])
        return Binder(tuple(map(str, names)), type_, str(left), default, span=span)

    def instance(self, parts: Any) -> Binder:
        names = (str(parts[1]),) if len(parts) == 5 else ()
        return Binder(names, parts[-2], "[", span=self._over(parts[0], parts[-1]))

    def signature(self, parts: Any) -> tuple[tuple[Binder, ...], Term]:
        return (tuple(parts[0]) if len(parts) == 3 else ()), parts[-1]

    def telescope(self, parts: Any) -> tuple[Binder, ...]:
        return tuple(parts[0])


def _ascribed_names(term: Term) -> tuple[str, ...]:
    """The names that ``(x y : T)`` binds when an arrow follows it."""
    if not isinstance(term, Ascribe):
        return ()
    head, *args = (term.term.fn, *term.term.args) if isinstance(term.term, App) else (term.term,)
    names = []
    for part in (head, *args):
        if isinstance(part, Hole) and part.name == "_":
            names.append("_")
        elif isinstance(part, Ident):
            names.append(part.name)
        else:
            return ()
    return tuple(names)


_BUILD = _Build()


@cache
def _lark() -> Lark:
    from lark import Lark

    return Lark(
        grammar("lean"),
        parser="lalr",
        lexer="basic",
        start=["term", "signature", "telescope", "outside"],
        transformer=_BUILD,
        maybe_placeholders=False,
    )
