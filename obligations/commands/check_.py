"""``obligations check``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from obligations.commands import options


@click.command("check")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@options.settings
@click.option(
    "--seeds",
    metavar="K",
    type=click.IntRange(1, 1000),
    default=1,
    show_default=True,
    help="Evaluate every statement at K random samples.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the ledgers to FILE as JSON.",
)
def command(
    targets: tuple[str, ...], settings: dict[str, str], seeds: int, json_file: Path | None
) -> int:
    """Confirm every statement of the TARGETs by numbers.

    A TARGET is a built-in net (see `obligations list`) or the path of a description.
    """
    from obligations import report
    from obligations.check import confirm
    from obligations.commands.generate_ import derived_or_differences
    from obligations.net_reader import load

    nets = [load(target, settings) for target in targets]
    ledgers: list[dict[str, Any]] = []
    ok = True
    for i, net in enumerate(nets):
        derived = derived_or_differences(net)
        if derived is None:
            ok = False
            continue
        with report.working(f"confirming {net.name}") as progress:
            found = confirm(derived, seeds=range(seeds), progress=progress)
        if i:
            click.echo()
        report.ledger(found)
        sys.stdout.flush()
        ok = ok and found.ok
        ledgers.append(found.as_json())
    if json_file is not None:
        from obligations.generate import replace_file

        replace_file(json_file, json.dumps(ledgers, indent=2, ensure_ascii=False) + "\n")
    return 0 if ok else 1
