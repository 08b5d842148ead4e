"""A backward step that the file defines, against the derivative of its operation."""

from __future__ import annotations

from collections.abc import Iterable

from obligations.confirm.block import scope_of
from obligations.confirm.roads import Point, input_gradient
from obligations.confirm.tally import Tally
from obligations.lean import Environment
from obligations.ops import length, operations
from obligations.shadow import Evaluator, rng_for, tensor, type_shape
from obligations.statements import Obligation, template


def check_step(
    obligation: Obligation, env: Environment, seeds: Iterable[int], tally: Tally
) -> None:
    """A step the file defines, against the derivative of its operation's forward."""
    name = obligation.notes.get("step", obligation.name)
    operation, symbol = next(
        (o, step.input)
        for o in operations().values()
        for step in o.backward
        if step.defined_in_file == name
    )
    constant = env[obligation.name]
    for seed in seeds:
        rng = rng_for(seed, obligation.name)
        dims = {"N": 2, "ic": 3, "oc": 4, "c": 3, "h": 2, "w": 3, "kH": 3, "kW": 3}
        evaluator = Evaluator(env)
        params = {
            p.symbol: tensor(p, type_shape(template(p.type), dims), rng)
            for p in operation.parameters
        }
        xs = tuple(rng.normal(size=(1, length(i.axes, dims))) for i in operation.inputs)
        dy = rng.normal(size=(1, length(operation.output, dims)))
        scope = scope_of(constant, {**dims, **params, "dy": dy}, obligation.roles)
        wanted = input_gradient(Point(operation, dims, params, {}, xs, dy), symbol)
        tally.compare("cotangent", evaluator.value(constant.term, scope), wanted)
        used = operation.symbols()
        tally.sizes[" ".join(f"{k}={v}" for k, v in dims.items() if k in used)] = None
