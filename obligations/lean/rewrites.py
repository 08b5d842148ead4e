"""What in a file changes the meaning of the text after it, and what it leaves unproved.

None of it is followed: a reader can only say that it is there.
"""

from __future__ import annotations

import re

from obligations.lean.source import Command, FileDeclaration, LeanFile, tokens
from obligations.lean.words import ASSUMED, DEFINITIONS, REWRITING

_CLASSES = (
    "BEq Decidable DecidableEq DecidablePred DecidableRel Fact Fintype Hashable Inhabited IsEmpty "
    "LawfulBEq NeZero Nonempty Repr Subsingleton ToString"
)
HARMLESS = frozenset(_CLASSES.split())
"""Classes no instance of which says what ``+``, ``*``, ``0``, ``<`` or a coercion means."""

_MARKED = re.compile(r"\[[^\]]*(?<![\w'.])instance\b")


def rewriting(file: LeanFile) -> tuple[Command, ...]:
    """The commands of a file that change what the text after them means, in its order."""
    return tuple(c for c in file.others if _rewrites(c))


def _rewrites(command: Command) -> bool:
    if command.kind == "attribute":
        return _MARKED.search(command.at.code) is not None
    return command.kind in REWRITING and not _about_proofs(command)


def _about_proofs(command: Command) -> bool:
    """Whether a command is about tactics alone."""
    return bool(re.search(r":\s*tactic\b|\(tactic\s*\|", command.at.code))


def gives_instance(declaration: FileDeclaration) -> bool:
    """Whether a declaration is an instance that may give an operation or a numeral its meaning."""
    if declaration.kind != "instance":
        return any("instance" in re.findall(r"[\w'.]+", a) for a in declaration.attributes)
    words = () if declaration.type_at is None else tokens(declaration.type_at)
    # `instance [Fintype α] : Fintype (Foo α)`: the class is the first word of the type.
    name = next((w for w in words if w not in ("(", "@")), "")
    return name.rpartition(".")[2] not in HARMLESS


def unproved(declaration: FileDeclaration) -> bool:
    """Whether the proof of a theorem has ``sorry`` in it."""
    if declaration.kind in DEFINITIONS or declaration.kind in ASSUMED:
        return False
    parts = [p for p in (declaration.body_at, declaration.tail_at) if p is not None]
    return any(t in ("sorry", "admit") for p in parts for t in tokens(p))
