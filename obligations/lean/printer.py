"""Lean terms and declaration heads as text, laid out the way mathlib is written.

A term becomes a small document (:class:`Doc`), and a document becomes lines no longer than a width.
Parentheses follow the precedences of Lean 4 and Mathlib, so that what is printed reads back as the
term it came from. Where Lean would take a ``fun``, ``∀``, ``∑`` or ``let`` bare but a reader would
stumble (an argument, an operand of arithmetic), parentheses are printed.

Nothing here recurses on a term: :func:`term` prints one of any depth.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

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
    Raw,
    Str,
    Term,
    Tuple,
    Un,
)

# --- documents ------------------------------------------------------------------------------------

_TEXT, _LINE, _CAT, _NEST, _ALIGN, _GROUP, _FILL, _HUG, _OWN = range(9)


class Doc(NamedTuple):
    """A layout to choose: ``kind`` with its ``parts``, and what choosing needs to know.

    ``flat`` is the text on one line, ``None`` when it is longer than any line may be. ``lead`` is
    the number of characters before the first place where a line may end, and ``breaks`` says
    whether there is such a place.
    """

    kind: int
    parts: tuple[Doc, ...]
    flat: str | None
    lead: int
    breaks: bool
    columns: int = 0  # of a nest


def _text(text: str) -> Doc:
    """``text`` as it is, never broken."""
    return Doc(_TEXT, (), text, len(text), False)


def _separator(flat: str) -> Doc:
    """``flat`` on one line, otherwise the end of a line."""
    return Doc(_LINE, (), flat, 0, True)


_SPACE: Final = _separator(" ")
_SEMICOLON: Final = _separator("; ")

# One-line forms longer than this are not kept: they never fit, and keeping them would cost the
# square of the size of a deep term.
_LONGEST: Final = 400
_HUGE: Final = 1_000_000


def _lead(parts: Iterable[Doc]) -> tuple[int, bool]:
    lead = 0
    for part in parts:
        lead += part.lead
        if part.breaks:
            return lead, True
    return lead, False


def _flat(parts: Iterable[Doc], between: str) -> str | None:
    texts = [p.flat for p in parts]
    if None in texts:
        return None
    flat = between.join(texts)  # type: ignore[arg-type]
    return flat if len(flat) <= _LONGEST else None


def _cat(*parts: Doc) -> Doc:
    """``parts`` one after another."""
    return Doc(_CAT, parts, _flat(parts, ""), *_lead(parts))


def _laid(kind: int, doc: Doc, columns: int = 0) -> Doc:
    """``doc`` in another layout.

    ``_NEST``: with its further lines ``columns`` more to the right. ``_ALIGN``: with them at the
    column where it starts. ``_GROUP``: on one line if it fits, otherwise with every separator of
    its own a line's end. As an item of a fill, ``_HUG``: starting on the line it is on if it fits
    on no line whole, and ``_OWN``: starting a line, should the fill take several.
    """
    return Doc(kind, (doc,), doc.flat, doc.lead, doc.breaks, columns)


def _nest(columns: int, doc: Doc) -> Doc:
    return _laid(_NEST, doc, columns)


def _group(doc: Doc) -> Doc:
    return _laid(_GROUP, doc)


def _fill(items: Sequence[Doc]) -> Doc:
    """``items`` with spaces between, as many on a line as fit; one that takes several lines
    ends its last."""
    if len(items) == 1:
        return items[0]
    first = items[0]
    return Doc(_FILL, tuple(items), _flat(items, " "), first.lead, True)


def _render(doc: Doc, indent: int, width: int, column: int) -> str:
    """The lines of ``doc``, the first one starting at ``column``."""
    out: list[str] = []
    lines = 0
    # Indentation, document, and for a fill under way the items printed and the line they ended on.
    stack: list[tuple[int, Doc, int, int]] = [(indent, doc, 0, 0)]

    def tail() -> int:
        """How many characters must follow on this line, whatever is chosen next."""
        lead = 0
        for _, doc, done, _ in reversed(stack):
            if done:
                break
            lead += doc.lead
            if doc.breaks:
                break
        return lead

    while stack:
        indent, doc, done, line = stack.pop()
        kind = doc.kind
        if kind == _TEXT:
            assert doc.flat is not None
            out.append(doc.flat)
            column += len(doc.flat)
        elif kind == _LINE:
            lines += 1
            out.append("\n" + " " * indent)
            column = indent
        elif kind == _CAT:
            stack.extend((indent, part, 0, 0) for part in reversed(doc.parts))
        elif kind == _NEST:
            stack.append((indent + doc.columns, doc.parts[0], 0, 0))
        elif kind == _ALIGN:
            stack.append((column, doc.parts[0], 0, 0))
        elif kind in (_GROUP, _HUG, _OWN):
            flat = doc.flat
            if flat is not None and column + len(flat) + tail() <= width:
                out.append(flat)
                column += len(flat)
            else:
                stack.append((indent, doc.parts[0], 0, 0))
        else:
            item = doc.parts[done]
            last = done + 1 == len(doc.parts)
            if done:
                size = _HUGE if item.flat is None else len(item.flat)
                size += tail() if last else 0
                if item.kind == _HUG and indent + size > width:
                    size = item.lead
                if line == lines and item.kind != _OWN and column + 1 + size <= width:
                    out.append(" ")
                    column += 1
                else:
                    lines += 1
                    out.append("\n" + " " * indent)
                    column = indent
            if not last:
                stack.append((indent, doc, done + 1, lines))
            stack.append((indent, _group(item), 0, 0))
    return "".join(out)


# --- precedence -----------------------------------------------------------------------------------

_ATOM: Final = 1025  # a name, or what has its own brackets
_MAX: Final = 1024  # an argument of an application: an atom, or one with a sign (`↑x`, `x⁻¹`)
_LEAD: Final = 1023  # an application
_SUM: Final = 67  # the body of a ∑
_NOT: Final = 40  # the operand of ¬
_NEG: Final = 75  # unary minus, and its operand
_RELATION: Final = 50
_CLOSED: Final = 10_000  # the right edge of a term takes in no operator that follows


def _left(level: int) -> tuple[int, int, int]:
    return level, level, level + 1


def _right(level: int) -> tuple[int, int, int]:
    return level, level + 1, level


def _none(level: int) -> tuple[int, int, int]:
    return level, level + 1, level + 1


# The level of an infix operation, and the least level of its left and of its right operand.
_INFIX: Final[dict[str, tuple[int, int, int]]] = {
    "<|": _none(9),  # at 10 as `|>` is; a mixture of both is hard to read
    "|>": _left(10),
    "↔": _none(20),
    "→": _right(25),
    "∨": _right(30),
    "||": _none(30),
    "∧": _right(35),
    "&&": _none(35),
    "×": _right(35),
    **dict.fromkeys(("=", "≠", "<", "≤", ">", "≥", "==", "!=", "≈", "≡"), _none(_RELATION)),
    **dict.fromkeys(("∈", "∉", "⊆", "⊂", "∣"), _none(_RELATION)),
    **dict.fromkeys(("+", "-", "++", "∪"), _left(65)),
    **dict.fromkeys(("*", "/", "%", "∩", "\\"), _left(70)),
    "•": _right(73),
    "^": _right(75),
    "▸": _right(75),
    "∘": _right(90),
}
# An operator not listed gets parentheses around it and around its operands.
_UNKNOWN: Final = (0, _MAX, _MAX)

_BODY: Final = {"fun": 0, "∀": 0, "∃": 0, "∑": _SUM, "∏": _SUM}


class _Out(NamedTuple):
    """A printed term without parentheses around it.

    ``level`` is its precedence. ``edge`` is the least level of an operator that, written after it,
    would be read as part of it (a ``fun`` at the right edge takes in everything). ``minus`` says
    that it starts with ``-``, which after a line end Lean reads as subtraction. ``key`` is equal
    for arguments that belong together on a line.
    """

    doc: Doc
    level: int = _ATOM
    edge: int = _CLOSED
    minus: bool = False
    key: str = ""


def _parens(doc: Doc) -> Doc:
    return _cat(_text("("), _group(doc), _text(")"))


def _operand(out: _Out, least: int, follows: int = -1) -> tuple[Doc, _Out]:
    """``out`` as an operand of at least level ``least`` before an operator of level ``follows``.

    The document, in parentheses where they are needed, and what its edges look like now.
    """
    if out.level >= least and out.edge > follows:
        return out.doc, out
    doc = _parens(out.doc)
    return doc, _Out(doc)


# --- terms ----------------------------------------------------------------------------------------

_SHORT: Final = 8  # characters of a word that is not left alone on a line
_LARGE: Final = 40  # characters of an argument that gets a line of its own

_OPENING: Final = frozenset("(⟨[{⦃")
_CLOSERS: Final = frozenset(")⟩]}⦄")

_Visit = Generator[Term, _Out, _Out]
_Made = TypeVar("_Made")


def _run(visit: Generator[Term, _Out, _Made]) -> _Made:
    """What a visit makes; :func:`_visit` is run, without recursion, on every part it asks for."""
    stack: list[Generator[Term, _Out, Any]] = [visit]
    result: Any = None
    while True:
        try:
            part = stack[-1].send(result)
        except StopIteration as done:
            stack.pop()
            result = done.value
            if not stack:
                return result  # type: ignore[no-any-return]
        else:
            stack.append(_visit(part))
            result = None


def _visit(t: Term) -> _Visit:
    match t:
        case Ident(name) | Hole(name):
            return _Out(_text(name))
        case Num(value):
            return _Out(_text(str(value)))
        case App(fn, args):
            return (yield from _app(fn, args))
        case Bin():
            return (yield from _bin(t))
        case Bind():
            return (yield from _bind(t))
        case Let():
            return (yield from _let(t))
        case Str(value):
            return _Out(_text(f'"{value}"'))
        case DotIdent(name):
            return _Out(_text(f".{name}"))
        case Proj(inner, field):
            out = yield inner
            bare = isinstance(inner, Proj) or _has_brackets(inner)
            head = out.doc if bare else _parens(out.doc)
            return _Out(_cat(head, _text(f".{field}")))
        case Un(("⁻¹" | "ᵀ" | "ᴴ") as op, inner):
            doc, _ = _operand((yield inner), _ATOM)
            return _Out(_cat(doc, _text(op)), _MAX)
        case Un("-", inner):
            out = yield inner
            # `--` would start a comment.
            doc, edges = _operand(out, _MAX if out.minus else _NEG)
            return _Out(_cat(_text("-"), doc), _NEG, min(_NEG, edges.edge), minus=True)
        case Un(("¬" | "!") as op, inner):
            # Lean takes `¬a = b` for `¬(a = b)`; the parentheses are for people.
            doc, edges = _operand((yield inner), _LEAD)
            return _Out(_cat(_text(op), doc), _LEAD, min(_NOT, edges.edge))
        case Un(op, inner):
            doc, _ = _operand((yield inner), _ATOM)
            return _Out(_cat(_text(op), doc), _LEAD if op == "√" else _MAX)
        case Ascribe(inner, type_):
            head, of = (yield inner).doc, (yield type_).doc
            body = _cat(head, _text(" :"), _nest(2, _cat(_SPACE, of)))
            return _Out(_parens(_group(body)))
        case Anon(items):
            return _Out((yield from _listed("⟨", items, "⟩")))
        case Tuple(items):
            return _Out((yield from _listed("(", items, ")")))
        case Raw(tokens):
            if len(tokens) == 1 or _has_brackets(t):
                return _Out(_raw(tokens))
            return _Out(_raw(tokens), _RELATION + 1, 0)


def _listed(opening: str, items: tuple[Term, ...], closing: str) -> Generator[Term, _Out, Doc]:
    docs = []
    for i, item in enumerate(items):
        doc = (yield item).doc
        docs.append(_cat(doc, _text(",")) if i + 1 < len(items) else doc)
    if not docs:
        return _text(opening + closing)
    columns = 2 if opening == "⟨" else 1
    return _cat(_text(opening), _nest(columns, _group(_fill(docs))), _text(closing))


def _has_brackets(t: Term) -> bool:
    """Whether ``t`` is printed with its own brackets around it."""
    if not isinstance(t, Raw):
        return isinstance(t, (Tuple, Ascribe))
    depth = 0
    for i, token in enumerate(t.tokens):
        depth += (token in _OPENING) - (token in _CLOSERS)
        if depth == 0:
            return i > 0 and i + 1 == len(t.tokens)
    return False


def _raw(tokens: tuple[str, ...]) -> Doc:
    words: list[str] = []
    glue = True
    for token in tokens:
        if words and (glue or token in _CLOSERS or token == ","):
            words[-1] += token
        else:
            words.append(token)
        glue = token in _OPENING
    return _group(_fill([_text(w) for w in words])) if words else _text("")


def _app(fn: Term, args: tuple[Term | NamedArg, ...]) -> _Visit:
    out = yield fn
    bare = isinstance(fn, (Ident, DotIdent, Proj)) or _has_brackets(fn)
    bare = bare or (isinstance(fn, Un) and fn.op == "@")
    items = [out.doc if bare else _parens(out.doc)]
    run: list[Doc] = []
    key = ""
    for arg in args:
        if isinstance(arg, NamedArg):
            value = (yield arg.value).doc
            doc, new = _cat(_text(f"({arg.name} := "), value, _text(")")), "(:=)"
        else:
            out = yield arg
            doc, new = _operand(out, _MAX)[0], out.key
        # Arguments that look alike, `(h := h) (w := w)`, are kept on one line.
        if not (new and new == key) and run:
            items.append(_fill(run))
            run = []
        run.append(doc)
        key = new
    items.append(_fill(run))
    # A short word after one long application is not left alone on a line.
    if len(items) == 3 and isinstance(args[0], App) and _long(items[1]) and _short(items[2]):
        items[1:] = [_cat(items[1], _text(" "), items[2])]
    # What is long starts a line (but never leaves the head alone on its own), and so does every
    # compound argument after it.
    large = False
    for i, item in enumerate(items[1:], 1):
        large = large or _long(item)
        if large and i > 1 and item.kind != _TEXT:
            items[i] = _laid(_OWN, item)
    if _short(items[0]) or (isinstance(args[-1], Bind) and len(items) == 2):
        items[1] = _laid(_HUG, items[1])
    head = fn.name if isinstance(fn, (Ident, DotIdent)) else ""
    return _Out(_group(_nest(2, _fill(items))), _LEAD, key=head)


_LEADING: Final = frozenset("∧∨∘")


def _bin(t: Bin) -> _Visit:
    level, left, right = _INFIX.get(t.op, _UNKNOWN)
    # A chain such as `a + b - c` or `p ∧ q ∧ r` is laid out as one.
    terms: list[Term] = []
    ops: list[str] = []
    spine: Term = t
    if left == level:
        while isinstance(spine, Bin) and _INFIX.get(spine.op, _UNKNOWN) == (level, left, right):
            terms.append(spine.right)
            ops.append(spine.op)
            spine = spine.left
        terms.append(spine)
        terms.reverse()
        ops.reverse()
    else:
        while isinstance(spine, Bin) and (spine is t or (right == level and spine.op == t.op)):
            terms.append(spine.left)
            ops.append(spine.op)
            spine = spine.right
        terms.append(spine)

    docs: list[Doc] = []
    edge, minus = _CLOSED, False
    for i, part in enumerate(terms):
        out = yield part
        first, last = i == 0, i + 1 == len(terms)
        # The chain's own end has the strict level on one side only.
        least = left if first or (left != level and not last) else right
        doc, edges = _operand(out, least, -1 if last else level)
        if t.op == "→" and not last and isinstance(part, Ascribe):
            doc = _parens(doc)  # `(x : A) → B` binds x
        if first:
            minus = edges.minus
        if last:
            edge = edges.edge
        docs.append(doc)
    return _Out(_group(_infix(docs, ops, level)), level, edge, minus, key=f" {t.op}")


def _infix(docs: list[Doc], ops: list[str], level: int) -> Doc:
    """Operands and the operators between them, over several lines."""
    if ops[0] in _LEADING:
        rest = [
            _cat(_SPACE, _text(f"{op} "), _nest(2, doc))
            for op, doc in zip(ops, docs[1:], strict=True)
        ]
        return _nest(2, _cat(_nest(2, docs[0]), *rest))
    if level in (20, _RELATION):
        (lhs, rhs), (op,) = docs, ops
        after = _text(" ") if _short(rhs) else _SPACE
        return _nest(2, _cat(lhs, _text(f" {op}"), after, rhs))
    items = [_cat(doc, _text(f" {op}")) for op, doc in zip(ops, docs, strict=False)]
    if _short(docs[-1]):
        items[-1] = _cat(items[-1], _text(" "), docs[-1])
    else:
        items.append(docs[-1])
    return _nest(2, _fill(items))


def _long(doc: Doc) -> bool:
    """Whether ``doc``, an argument, gets a line of its own."""
    return doc.flat is None or len(doc.flat) > _LARGE


def _short(doc: Doc) -> bool:
    """Whether ``doc`` is one short word."""
    return not doc.breaks and doc.lead <= _SHORT


def _bind(t: Bind) -> _Visit:
    # Heads of the same kind stand together: `∑ n : Fin N, ∑ j : Fin k, …`.
    heads = []
    body: Term = t
    while isinstance(body, Bind) and _BODY[body.quantifier] == _BODY[t.quantifier]:
        groups = yield from _binders(body.binders)
        sign = _text(body.quantifier if body.quantifier in "∑∏∀∃" else "fun")
        end = _text(" =>" if body.quantifier == "fun" else ",")
        heads.append(_cat(_nest(4, _fill([sign, *groups])), end))
        body = body.body
    out = yield body
    least = _BODY[t.quantifier]
    doc, edges = _operand(out, least)
    laid = _nest(2, _cat(_fill(heads), _SPACE, doc))
    return _Out(_group(laid), _RELATION + 1, min(least, edges.edge))


def _let(t: Let) -> _Visit:
    parts: list[Doc] = []
    body: Term = t
    while isinstance(body, Let):
        head = _text(f"let {body.name}")
        if body.type is not None:
            of = (yield body.type).doc
            head = _cat(head, _text(" : "), _nest(4, of))
        value = yield body.value
        doc = _parens(value.doc) if isinstance(body.value, Let) else value.doc
        parts += [_group(_cat(head, _text(" :="), _nest(4, _cat(_SPACE, doc)))), _SEMICOLON]
        body = body.body
    out = yield body
    # After a line end Lean would take a leading `-` for a subtraction from the last value.
    parts.append(_parens(out.doc) if out.minus else out.doc)
    return _Out(_laid(_ALIGN, _cat(*parts)), 0, 0)


# --- binders and declarations ---------------------------------------------------------------------

_CLOSING: Final = {"(": ")", "{": "}", "[": "]", "⦃": "⦄", "": ""}


def _binders(groups: tuple[Binder, ...]) -> Generator[Term, _Out, list[Doc]]:
    docs = []
    for b in groups:
        kind = b.kind
        if kind == "" and b.type is not None and len(groups) > 1:
            kind = "("  # `fun x : A y : B` is not Lean
        names = " ".join(b.names)
        doc = _text(kind + names)
        if b.type is not None:
            out = yield b.type
            of = _operand(out, 0, 0)[0] if kind == "" else out.doc
            colon = _text(f"{kind}{names} : " if names else kind)
            doc = _cat(colon, _nest(2, of))
        if b.default is not None:
            default = (yield b.default).doc
            doc = _cat(doc, _text(" := "), _nest(2, default))
        docs.append(_cat(doc, _text(_CLOSING[kind])))
    return docs


def term(t: Term, *, indent: int = 0, width: int = 100, column: int = 0) -> str:
    """``t`` as Lean text.

    Parameters
    ----------
    t
        The term. A ``let`` at the top is printed one binding per line.
    indent
        Column to which further lines are indented (deeper parts go further right).
    width
        Longest line, in characters; only a single word may be longer.
    column
        Column at which the first line starts; nothing is printed before it.

    Returns
    -------
    str
        Text without a final line end, from which the reader gets ``t`` back.
    """
    return _render(_run(_visit(t)).doc, indent, width, column)


def binders(groups: tuple[Binder, ...]) -> list[str]:
    """Each binder group on one line, as ``(x y : T)``."""
    return [_render(_group(doc), 0, 1_000_000, 0) for doc in _run(_binders(groups))]


def signature(
    head: str,
    groups: tuple[Binder, ...],
    type_: Term | None,
    tail: str = "",
    *,
    indent: int = 0,
    width: int = 100,
) -> str:
    """The head of a declaration: what it is, its binders, its type, and how its value starts.

    Parameters
    ----------
    head
        Everything before the binders, ``noncomputable def f``.
    groups
        Binder groups; as many on a line as fit, further lines four columns in.
    type_
        Type or statement after the colon, if there is one; on lines of its own when it does not
        fit behind the binders.
    tail
        What follows, ``:=`` or ``:= by``, on the last line.
    indent, width
        Column of ``head``, and the longest line.

    Returns
    -------
    str
        Text without a final line end; ``head`` is not indented.
    """
    items = [_text(head), *_run(_binders(groups))]
    end = _text(f" {tail.strip()}" if tail.strip() else "")
    if type_ is None:
        items[-1] = _cat(items[-1], end)
        return _render(_nest(4, _fill(items)), indent, width, indent)
    items[-1] = _cat(items[-1], _text(" :"))
    of = _cat(_run(_visit(type_)).doc, end)
    if isinstance(type_, Let):
        doc = _nest(4, _cat(_fill(items), _SPACE, of))
    else:
        doc = _nest(4, _fill([*items, of]))
    return _render(doc, indent, width, indent)
