"""``obligations list``."""

import click


@click.command("list")
def command() -> int:
    """List the built-in nets and the options of each."""
    from obligations.description import load
    from obligations.ledger import table
    from obligations.ops import precisions
    from obligations.resources import built_in_nets

    rows = []
    for name in built_in_nets():
        net = load(name)
        options = [f"precision={'|'.join(precisions())}"]
        options += [f"{o.name}={'|'.join(o.values)}" for o in net.options]
        rows.append((name, net.module, " ".join(options)))
    table(("net", "module", "options, the default first"), rows)
    return 0
