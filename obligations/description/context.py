"""What every part of a description is read against, and how it says that something does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from lark import Token

from obligations.description import text as syntax
from obligations.description.model import Option, Shape
from obligations.description.text import at
from obligations.errors import InputError, Source, Span, nearest
from obligations.ops import Loss, Padding, losses

_Entry = TypeVar("_Entry")


@dataclass(frozen=True, slots=True)
class Context:
    """The net's text, the values its conventions have, its options and their settings."""

    source: Source
    text: syntax.NetText
    classes: str
    stated: Mapping[str, str]
    options: Mapping[str, Option]
    settings: Mapping[str, str]

    @property
    def padding(self) -> Padding:
        """The padding of its stride-2 sites."""
        return self.stated["padding"]

    @property
    def loss(self) -> Loss:
        """Its loss; the table's first where the conventions do not say."""
        table = losses()
        return table[self.stated.get("loss", next(iter(table)))]

    def fail(self, place: Token | Span, message: str, hint: str = "") -> NoReturn:
        """Raise the error that ``message`` holds at ``place``."""
        span = place if isinstance(place, Span) else at(place)
        raise InputError(self.source, span, message, hint=hint)

    def known(self, token: Token, names: Iterable[str], what: str) -> str:
        """``token`` as a string, which must be among ``names``."""
        names = list(names)
        if token not in names:
            self.fail(token, f"{what} '{token}'", nearest(token, names))
        return str(token)

    def distinct(self, tokens: Iterable[Token], what: str) -> None:
        """No two of ``tokens`` may be equal."""
        seen: dict[str, Token] = {}
        for token in tokens:
            if token in seen:
                self.fail(token, f"{what} '{token}' is already on line {seen[token].line}")
            seen[str(token)] = token

    def is_on(self, option: str) -> bool:
        """Whether an option is set to other than its default."""
        return self.settings[option] != self.options[option].values[0]


@dataclass(frozen=True, slots=True)
class BlockContext:
    """One block's text, and what its sites are read against.

    Attributes
    ----------
    symbols
        The names its dimensions are made of.
    input_name, input_shape
        Its input, the shape in its symbols.
    lines
        Its sites as written.
    flags
        The flags its kinds set.
    loose
        Binders of loose parameters by their field of the net's weights; empty for a record.
    """

    net: Context
    text: syntax.BlockText
    symbols: frozenset[str]
    input_name: Token
    input_shape: Shape
    lines: tuple[syntax.SiteLine, ...]
    flags: frozenset[str]
    loose: Mapping[str, str]

    @property
    def name(self) -> Token:
        """The block's name."""
        return self.text.name

    @property
    def site_names(self) -> list[str]:
        """Every site, in order."""
        return [str(line.name) for line in self.lines]


def entries(block: syntax.BlockText, kind: type[_Entry]) -> list[_Entry]:
    """The block's lines of one kind."""
    return [e for e in block.entries if isinstance(e, kind)]


def entry(net: Context, block: syntax.BlockText, kind: type[_Entry], word: str) -> _Entry | None:
    """The block's line of one kind, of which there may be one."""
    found = entries(block, kind)
    if len(found) > 1:
        net.fail(first_name(found[1]), f"{block.name} has a second `{word}` line")
    return found[0] if found else None


def needed(net: Context, block: syntax.BlockText, kind: type[_Entry], word: str) -> _Entry:
    """The block's line of one kind, of which there must be one."""
    found = entry(net, block, kind, word)
    if found is None:
        net.fail(block.name, f"{block.name} has no `{word}` line")
    return found


def first_name(entry: object) -> Token:
    """The first name of a block's line, for an error about it."""
    if isinstance(entry, syntax.Saved):
        return entry.sites[0][0]
    for name in ("name", "binder", "definition", "prefix", "site"):
        value = getattr(entry, name, None)
        if isinstance(value, Token):
            return value
    raise TypeError(entry)


def dimension_names(block: syntax.BlockText, classes: str) -> frozenset[str]:
    """The names that may stand in a shape of ``block``."""
    return frozenset({*map(str, (*block.widths, *block.space)), classes})
