"""``obligations census``."""

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
    from obligations.ledger import table
    from obligations.writing import title

    found = load(net)
    count = census(found)
    rows = [
        (
            title(found.blocks[g.block]).replace("`", ""),
            str(g.uses),
            str(g.tensors),
            str(g.biases),
            str(g.uses * g.tensors),
            str(g.uses * (g.tensors + g.biases)),
        )
        for g in count.groups
    ]
    rows.append(("total", "", "", "", str(count.total), str(count.with_biases)))
    table(
        ("block", "uses", "tensors", "conv biases", "trained", "with biases"),
        rows,
        numbers=range(1, 6),
        total=True,
    )
    return 0
