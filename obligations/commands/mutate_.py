"""``obligations mutate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from obligations import description, mutation
from obligations.commands import options
from obligations.commands.generate_ import derived_or_differences
from obligations.ledger import show, working


@click.command("mutate")
@click.argument("nets", metavar="NET...", nargs=-1, required=True)
@options.settings
@click.option(
    "--fault",
    "faults",
    metavar="TEXT",
    multiple=True,
    help="Only kinds of faults whose name has TEXT in it; may be given several times.",
)
@click.option("--list", "each", is_flag=True, help="Show every fault and what became of it.")
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write every fault and what became of it to FILE as JSON.",
)
def command(
    nets: tuple[str, ...],
    settings: dict[str, str],
    faults: tuple[str, ...],
    each: bool,
    json_file: Path | None,
) -> int:
    """Break the conventions of each NET one by one and count what is caught.

    A fault is made on one side only, the forward keeps its meaning. It is refused as input, or
    held against the comparison of the render with the forward and, apart from it, against the
    numbers alone. A fault with no effect has the same values on every sample and a reason to;
    the comparison reports it, or the check of the slots no value depends on.
    """
    options.writable(nets, json=json_file)

    def wanted(fault: str) -> bool:
        return not faults or any(text in fault for text in faults)

    ok = True
    found: list[dict[str, Any]] = []
    for i, name in enumerate(nets):
        derived = derived_or_differences(description.load(name, settings))
        if derived is None:
            ok = False
            continue
        with working(f"breaking {derived.net.name}") as progress:
            result = mutation.mutants.run(derived.net, only=wanted, progress=progress)
        if not result.outcomes:
            raise click.BadParameter(f"no kind of fault has {' or '.join(faults)} in its name")
        if i:
            click.echo()
        print_report(result, each=each)
        ok = ok and result.ok
        found.append(result.as_json())
    options.write_json(json_file, found)
    return 0 if ok else 1


def print_report(result: mutation.Report, *, each: bool = False) -> None:
    """The table of a report, the reasons of faults without effect, and what is not caught."""
    if each:
        for outcome in result.outcomes:
            click.echo(_line(outcome))
        click.echo()
    show(result.shown())
    reasons = result.reasons()
    if reasons:
        click.echo("\nno effect, because")
        for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
            click.echo(f"  {count:4}  {reason}")
    for words, outcomes in (
        ("no number shows it, and no reason is known:", result.unexplained()),
        ("the comparison does not report it:", result.uncompared()),
        ("nothing reports it:", result.unseen()),
    ):
        for outcome in outcomes:
            click.echo(f"\n{words}\n  {_line(outcome)}")
    total = result.totals()
    click.echo(
        f"\n{result.net}: {total['made']} faults, {total['refused']} refused as input, "
        f"{total['numbers']} shown by numbers alone, {total['equivalent']} without effect, "
        f"{total['unexplained']} unexplained; {result.seconds:.1f} s"
    )


def _line(outcome: mutation.Outcome) -> str:
    mutant = outcome.mutant
    place = f"{mutant.block}: " if mutant.block else ""
    said = {
        "refused": f"refused: {outcome.refused}",
        "caught": f"numbers: {outcome.numbers}",
        "equivalent": f"no effect: {outcome.reason}",
        "unexplained": "unexplained",
    }[outcome.status]
    other = outcome.compared[0] if outcome.compared else outcome.slots
    more = f"; reported: {other}" if other and outcome.status != "refused" else ""
    return f"{mutant.fault}: {place}{mutant.text} — {said}{more}"
