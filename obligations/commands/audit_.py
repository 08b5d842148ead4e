"""``obligations audit``."""

from __future__ import annotations

from pathlib import Path

import click

from obligations import audit, description
from obligations.commands import options, paging
from obligations.errors import ObligationsError
from obligations.ledger import show, working

SHOWN = 8
"""How many places of one convention are shown; all are in the JSON and on the page."""
SHOWN_OF_SEVERAL = 1
"""The same, where several files are audited."""


@click.command("audit")
@options.net
@click.argument("files", metavar="[FILE.mlir]...", nargs=-1)
@options.settings
@click.option(
    "--artifacts",
    "folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Audit every training step in DIR whose file name starts with the net's.",
)
@click.option(
    "--numbers/--no-numbers",
    default=None,
    help="Evaluate the artifact and compare its gradients (default: when it is small).",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what was found to FILE as JSON.",
)
@paging.html
def command(
    net: str,
    files: tuple[str, ...],
    settings: dict[str, str],
    folder: Path | None,
    numbers: bool | None,
    json_file: Path | None,
    html_file: Path | None,
) -> int:
    """Hold the conventions of NET against StableHLO training steps.

    A line per convention says at how many places it holds, and where it does not: the line in the
    file, what is there, what the description says. The code is 0 when all hold, 2 when a file is
    no training step of the net or --numbers asks for what cannot be evaluated.
    """
    options.writable((net, *files), json=json_file, html=html_file)
    described = description.load(net, settings)
    wanted = [*files, *(() if folder is None else audit.artifacts(described, folder))]
    if not wanted:
        if folder is None:
            raise click.UsageError("name a FILE.mlir, or a folder by --artifacts")
        raise click.UsageError(f"{folder} has no training step of {described.name}")
    options.writable(map(str, wanted), json=json_file, html=html_file)
    found: list[audit.Audit] = []
    refused = unanswered = 0
    for name in wanted:
        try:
            with working(f"audit {name}"):
                found.append(audit.audit(described, audit.load(name), numbers=numbers))
        except ObligationsError as error:
            if len(wanted) == 1:
                raise
            refused += 1
            click.echo(error.render(), err=True)
            continue
        _print(found[-1], whole=len(wanted) == 1)
        if numbers and (reason := found[-1].unevaluated):
            # What was asked for is not answered, whatever else holds.
            unanswered += 1
            click.echo(ObligationsError(f"{name}: the numbers are {reason}").render(), err=True)
    if len(wanted) > 1:
        good = sum(a.ok for a in found)
        told = f", {refused} cannot be read as such" if refused else ""
        click.echo(f"{described.name}: {good} of {len(wanted)} training steps agree{told}")
    options.write_json(json_file, [a.as_json() for a in found])
    if html_file is not None:
        paging.write(html_file, "audit", [paging.audit_chapter(a, described) for a in found])
    return 2 if refused or unanswered else 0 if all(a.ok for a in found) else 1


def _print(found: audit.Audit, *, whole: bool) -> None:
    """The rows and what differs; of a good one among several, a line."""
    if whole:
        show(found.table())
    for row in found.rows:
        if not row.ok:
            if not whole:
                click.echo(f"{row.convention}: {row.said}")
            _differences(found, row, SHOWN if whole else SHOWN_OF_SEVERAL)
    lead = "" if whole else f"{found.source.name}: "
    click.echo(lead + audit.summary(found))


def _differences(found: audit.Audit, row: audit.Row, most: int) -> None:
    for mismatch in row.mismatches[:most]:
        click.echo(audit.shown(found, row, mismatch))
    more = len(row.mismatches) - most
    if more > 0:
        click.echo(f"  {row.convention}: and {more} more")
