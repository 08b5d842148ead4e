"""``obligations check``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from obligations.commands import batching, options


@click.command("check")
@click.argument("targets", metavar="TARGET...", nargs=-1, required=True)
@options.settings
@batching.options
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the ledgers to FILE as JSON.",
)
def command(
    targets: tuple[str, ...], settings: dict[str, str], json_file: Path | None, **chosen: Any
) -> int:
    """Confirm every statement of the TARGETs by numbers.

    A TARGET is a built-in net (see `obligations list`) or the path of a description.
    """
    batch = batching.chosen(**chosen)
    from obligations import report
    from obligations.commands.generate_ import derived_or_differences
    from obligations.net_reader import load

    nets = [load(target, settings) for target in targets]
    derived = [found for found in map(derived_or_differences, nets) if found is not None]
    ok = len(derived) == len(nets)
    ledgers: list[dict[str, Any]] = []
    for i, ledger in enumerate(batching.run(derived, batch) if derived else ()):
        if i:
            click.echo()
        report.ledger(ledger)
        sys.stdout.flush()
        ok = ok and ledger.ok
        ledgers.append(ledger.as_json())
    if json_file is not None:
        from obligations.generate import replace_file

        replace_file(json_file, json.dumps(ledgers, indent=2, ensure_ascii=False) + "\n")
    return 0 if ok else 1
