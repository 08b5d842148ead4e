"""``obligations census``."""

from typing import Any

import click

from obligations.commands.options import net as net_argument


@click.command("census")
@net_argument
def command(net: str) -> int:
    """Count the tensors that NET trains.

    NET is a built-in net (see `obligations list`) or the path of a description. Convolution biases
    are counted apart: a BatchNorm after the layer takes them out again.
    """
    from obligations.description import census, load
    from obligations.ledger import Column, Table, show
    from obligations.writing import title

    found = load(net)
    count = census(found)
    columns: tuple[Column[Any], ...] = (
        Column("block", lambda g: title(found.blocks[g.block]).replace("`", ""), role="name"),
        Column("uses", lambda g: g.uses, role="number"),
        Column("tensors", lambda g: g.tensors, role="number"),
        Column("conv biases", lambda g: g.biases, role="number"),
        Column("trained", lambda g: g.uses * g.tensors, role="number"),
        Column("with biases", lambda g: g.uses * (g.tensors + g.biases), role="number"),
    )
    total = ("total", "", "", "", count.total, count.with_biases)
    show(Table.of(columns, count.groups, total=total))
    return 0
