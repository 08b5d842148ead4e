"""``obligations census``."""

from typing import Any

import click

from obligations import description, writing
from obligations.commands import options
from obligations.ledger import Column, Table, show


@click.command("census")
@options.net
def command(net: str) -> int:
    """Count the tensors that NET trains.

    NET is a built-in net (see `obligations list`) or the path of a description. Convolution biases
    are counted apart: a BatchNorm after the layer takes them out again.
    """
    found = description.load(net)
    count = description.census(found)
    columns: tuple[Column[Any], ...] = (
        Column(
            "block", lambda g: writing.title(found.blocks[g.block]).replace("`", ""), role="name"
        ),
        Column("uses", lambda g: g.uses, role="number"),
        Column("tensors", lambda g: g.tensors, role="number"),
        Column("conv biases", lambda g: g.biases, role="number"),
        Column("trained", lambda g: g.uses * g.tensors, role="number"),
        Column("with biases", lambda g: g.uses * (g.tensors + g.biases), role="number"),
    )
    total = ("total", "", "", "", count.total, count.with_biases)
    show(Table.of(columns, count.groups, total=total))
    return 0
