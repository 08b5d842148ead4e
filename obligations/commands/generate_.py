"""``obligations generate``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO

import click

from obligations import confirm, description, elaborate, lean, statements, writing
from obligations.commands import options
from obligations.ledger import ELABORATED, show_ledger, working


@click.command("generate")
@options.net
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to, made if need be (default: out).",
)
@options.settings
@click.option("--unchecked", is_flag=True, help="Write without confirming; the header says so.")
@click.option("--force", is_flag=True, help="Overwrite a file that was edited.")
@click.option("--stdout", is_flag=True, help="Print the file instead of writing it.")
@click.option("--no-lean", is_flag=True, help="Do not have Lean elaborate the statements.")
def command(
    net: str,
    out: Path | None,
    settings: dict[str, str],
    unchecked: bool,
    force: bool,
    stdout: bool,
    no_lean: bool,
) -> int:
    """Write the tie file of NET, every statement confirmed.

    NET is a built-in net (see `obligations list`) or the path of a description. Its render chains
    are compared with the derivative of its forward, its statements are derived and evaluated, and
    the file is written if all of them hold.
    """
    if stdout and out is not None:
        raise click.UsageError("--stdout writes no file: leave out --out")
    found = description.load(net, settings)
    changed = options.not_default(found)
    if changed and out is None and not stdout:
        raise click.UsageError(
            f"{', '.join(changed)} is not the default: say where with --out DIR, or --stdout"
        )
    derived = derived_or_differences(found)
    if derived is None:
        return 1
    shown = sys.stderr if stdout else sys.stdout
    if not unchecked and not confirmed(derived, shown, lean=not no_lean):
        click.echo(f"{net}: nothing written", err=True)
        return 1
    content = writing.tie_file.text(derived, checked=not unchecked)
    if stdout:
        sys.stdout.flush()
        # The file's own encoding, whatever the terminal's is.
        sys.stdout.buffer.write(content.encode("utf-8"))
        return 0
    path = writing.tie_file.write(content, out or Path("out"), found.module, force=force)
    count = len(derived.obligations)
    how = "not confirmed" if unchecked else "all confirmed"
    click.echo(f"{path}: {count} declarations, {how}; {census_line(found)}")
    return 0


def derived_or_differences(net: description.Net) -> statements.Derived | None:
    """The statements of a net, or nothing after telling where its conventions differ."""
    try:
        return statements.derive(net)
    except statements.ConventionsDiffer as error:
        click.echo(error.render(), err=True)
        return None


def confirmed(derived: statements.Derived, stream: IO[str], *, lean: bool) -> bool:
    """Whether every statement holds and none is refused by a Lean at hand; prints the ledger."""
    with working(f"confirming {derived.net.name}") as progress:
        ledger = confirm.confirm(derived, progress=progress)
        progress("Lean")
        verdicts, told = elaborated(derived) if lean else ({}, "Lean: not asked (--no-lean)")
    show_ledger(ledger, stream, lean=verdicts, told=told)
    return ledger.ok and all(v == ELABORATED for v in verdicts.values())


def elaborated(derived: statements.Derived) -> tuple[dict[str, str], str]:
    """Lean's verdict on each declaration in a word or two, and on all of them in a line.

    Nothing, and why, where there is no Lean at hand or it does not come to an end.
    """
    try:
        found = elaborate.net.run(derived)
    except lean.LeanError as error:
        return {}, f"Lean: not elaborated here ({error.message})"
    verdicts = {v.name: ELABORATED if v.fits else elaborate.net.describe(v) for v in found.verdicts}
    if found.faults:
        verdicts |= {name: "signature refused" for name, _ in found.faults}
    count = sum(v == ELABORATED for v in verdicts.values())
    told = (
        f"Lean {found.lean}: {count} of {len(found.verdicts)} declarations elaborated against "
        f"{len(found.signatures)} signatures; proofs by tactics are not checked"
    )
    for v in found.verdicts:
        told += "".join(f"\n{v.name}: {finding.text}" for finding in v.findings)
    return verdicts, told


def census_line(net: description.Net) -> str:
    """The census in a few words."""
    count = description.census(net)
    return f"{count.total} tensors, {count.with_biases} with convolution biases"
