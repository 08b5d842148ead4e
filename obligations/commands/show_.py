"""``obligations show``."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import click

from obligations import description, show, statements, writing
from obligations.commands import options
from obligations.errors import ObligationsError, nearest
from obligations.ledger import is_terminal, width


@click.command("show")
@options.net
@options.settings
@click.option(
    "--block",
    "block",
    metavar="KIND",
    help="A block or one of its kinds, such as Resid or stem (default: all).",
)
@click.option(
    "--svg",
    "svg_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the drawing to FILE as SVG.",
)
def command(net: str, settings: dict[str, str], block: str | None, svg_file: Path | None) -> int:
    """Draw the cotangents of NET's blocks.

    Each site of the forward stands on the left, its cotangent beside it, and beside that the
    parameters whose gradient nodes read it. A render that differs from the derivative of the
    forward is marked with what it should be, and the exit code is 1.
    """
    options.writable((net,), svg=svg_file)
    found = description.load(net, settings)
    shown = _chosen(statements.sections(found), block)
    if svg_file is None:
        _print(shown)
    else:
        writing.replace_file(svg_file, show.svg(shown))
        sites = sum(len(p.rows) for p in shown)
        blocks = "1 block" if len(shown) == 1 else f"{len(shown)} blocks"
        click.echo(f"{svg_file}: {blocks}, {sites} sites")
    differences = dict.fromkeys(d for p in shown for d in p.differences)
    for difference in differences:
        click.echo(difference.render(found.source), err=True)
    return 1 if differences else 0


def _chosen(parts: Mapping[str, statements.Section], name: str | None) -> list[show.Picture]:
    """The pictures of a block, of one of its kinds, or of every block."""
    if name is None:
        return show.pictures(parts)
    kinds = {kind: section for section in parts.values() for kind in section.forwards}
    # A block may be called as one of its kinds is; then its kind is meant.
    if name in kinds:
        return [show.picture(kinds[name], name)]
    if name in parts:
        return show.pictures({name: parts[name]})
    hint = nearest(name, {*kinds, *parts})
    raise ObligationsError(f"no block and no kind is called '{name}'", hint=hint)


_STYLES = {"bad": "bold red", "soft": "dim", "title": "bold"}


def _print(shown: Iterable[show.Picture]) -> None:
    out = sys.stdout
    lines = [line for picture in shown for line in (*show.text(picture, width(out)), ())][:-1]
    if not is_terminal(out):
        for line in lines:
            click.echo("".join(part for part, _ in line))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(file=out, highlight=False)
    for line in lines:
        parts = [(part, _STYLES.get(style, "")) for part, style in line]
        console.print(Text.assemble(*parts), soft_wrap=True)
