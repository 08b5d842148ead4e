"""The option ``--html`` and what it writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from obligations import audit, confirm, description, show, statements, writing
from obligations.ledger import Ledger
from obligations.resources import built_in_nets

if TYPE_CHECKING:
    from obligations.diff import Comparison

html = click.option(
    "--html",
    "html_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write FILE, one page with the tables, what differs and every block drawn.",
)
"""``--html FILE``, given to the command as ``html_file``."""


def chapters(
    targets: Iterable[str], settings: Mapping[str, str], ledgers: Sequence[Ledger] = ()
) -> list[show.Chapter]:
    """A chapter for each net of ``targets``, with its ledger where there is one.

    ``ledgers`` are in the order of the nets. Lean files among the targets are left out.
    """
    given = list(ledgers)
    paths = [target for target in targets if not target.endswith(".lean")]
    nets = [description.load(path, settings) for path in paths]
    names = [net.name for net in nets]
    out = []
    for path, net in zip(paths, nets, strict=True):
        parts = statements.sections(net)
        found = statements.differences(net, parts)
        # Ledgers come in the order of the nets; one that differs was not evaluated.
        mine = given.pop(0) if given and not found and given[0].net == net.name else None
        chapter = show.net_chapter(net, parts, found, mine)
        if names.count(net.name) > 1:
            chapter = replace(chapter, title=f"{net.name}, {path}")
        out.append(chapter)
    return out


def file_chapter(
    found: confirm.FileLedger, summary: str, net: str | None, allow_unknown: bool
) -> show.Chapter:
    """A chapter for a Lean file, the blocks of the net it is about drawn."""
    about = next((x for x in map(description.load, built_in_nets()) if x.name == found.net), None)
    if net is not None:
        about = description.load(net)
    drawn = None if about is None else statements.sections(about)
    return show.page.file_chapter(found, summary, drawn, allow_unknown=allow_unknown)


def diff_chapter(found: Comparison, a: str, settings: Mapping[str, str]) -> show.Chapter:
    """A chapter for two files compared, the blocks drawn where ``a`` is a net."""
    drawn = None if a.endswith(".lean") else statements.sections(description.load(a, settings))
    return show.page.diff_chapter(found, drawn)


def audit_chapter(found: audit.Audit, net: description.Net) -> show.Chapter:
    """A chapter for a training step, the blocks of its net drawn."""
    return show.page.audit_chapter(found, statements.sections(net))


def write(path: Path, command: str, found: Sequence[show.Chapter]) -> None:
    """Write the page of a command."""
    show.page.write(
        path, show.page.Page(command, writing.listed(c.title for c in found), tuple(found))
    )
