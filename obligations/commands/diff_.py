"""``obligations diff``."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from obligations import description, diff, lean, writing
from obligations.commands import options, paging
from obligations.commands.generate_ import derived_or_differences
from obligations.errors import Source
from obligations.ledger import show


@click.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B.lean")
@options.settings
@click.option("--statements-only", is_flag=True, help="Say nothing about proofs.")
@click.option("--markdown", is_flag=True, help="Print for a pull request comment.")
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the comparison to FILE as JSON.",
)
@paging.html
def command(
    a: str,
    b: str,
    settings: dict[str, str],
    statements_only: bool,
    markdown: bool,
    json_file: Path | None,
    html_file: Path | None,
) -> int:
    """Compare the tie file A with B.lean, declaration by declaration.

    A is a net (its file is generated in memory) or a Lean file. The code is 0 when B has every
    declaration of A under its name and none states anything else.
    """
    options.writable((a, b), json=json_file, html=html_file)
    if a.endswith(".lean"):
        if settings:
            raise click.UsageError("--set is for a net: A is a Lean file")
        left: Source | None = lean.load(a)
    else:
        left = _generated(a, settings)
    if left is None:
        if html_file is not None:
            paging.write(html_file, "diff", paging.chapters([a], settings))
        return 1
    found = diff.compare(left, lean.load(b), statements_only=statements_only)
    options.write_json(json_file, found.as_json())
    if markdown:
        sys.stdout.write(diff.markdown(found))
    else:
        _print(found)
    if html_file is not None:
        paging.write(html_file, "diff", [paging.diff_chapter(found, a, settings)])
    return 0 if found.ok else 1


def _generated(name: str, settings: dict[str, str]) -> Source | None:
    """The tie file of a net, or nothing after telling where its conventions differ."""
    net = description.load(name, settings)
    derived = derived_or_differences(net)
    if derived is None:
        return None
    # As `generate` writes it, so that the lines are those of the written file.
    text = writing.tie_file.text(derived, checked=True)
    return Source(f"{net.module}.lean, generated from {name}", text)


def _print(found: diff.Comparison) -> None:
    """The table, then the pieces that differ."""
    pairs = diff.named(found)
    show(diff.table(pairs))
    for name, pair in pairs:
        lines = list(diff.details(pair))
        if lines:
            click.echo(f"\n{name}")
        for words, piece, side in lines:
            click.echo(f"  {words}{_colour(piece, side)}")
    click.echo(f"\nA is {found.left}, B is {found.right}: {diff.summary(found)}")


def _colour(text: str, word: str) -> str:
    # Click leaves the colour out where nobody looks.
    return click.style(text, fg="red" if word == "A" else "green") if text else ""
