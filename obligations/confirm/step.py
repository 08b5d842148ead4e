"""A backward step that the file defines, against the derivative of its operation."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping

import numpy as np

from obligations.confirm.block import scope_of
from obligations.confirm.tally import Tally, where
from obligations.lean import Environment
from obligations.ops import Array, Operation
from obligations.shadow import Evaluator, relative_error
from obligations.statements import Obligation


def check_step(
    obligation: Obligation, env: Environment, seeds: Iterable[int], tally: Tally
) -> None:
    """A step the file defines, against the derivative of its operation's forward."""
    from obligations.ops import operations

    step = obligation.notes.get("step", obligation.name)
    operation = next(o for o in operations().values() if o.backward.defined_in_file == step)
    constant = env.find(obligation.name)
    assert constant is not None
    assert constant.body is not None
    for seed in seeds:
        rng = np.random.default_rng([seed, zlib.crc32(obligation.name.encode())])
        sizes = {"N": 2, "ic": 3, "oc": 4, "c": 3, "h": 2, "w": 3, "kH": 3, "kW": 3}
        evaluator = Evaluator(env)
        params, x, dy = _operation_point(operation, sizes, rng)
        values = {**sizes, **params, "dy": dy}
        scope = scope_of(constant, values, obligation.roles)
        got = np.asarray(evaluator.value(constant.body, scope))
        wanted = _operation_vjp(operation, sizes, params, x, dy)
        tally.add("cotangent", relative_error(got, wanted), where(got, wanted))
        tally.sizes[" ".join(f"{k}={v}" for k, v in sizes.items() if k in _used(operation))] = None


def _used(operation: Operation) -> set[str]:
    names = {a.removeprefix("2*") for axes_ in operation.axes for a in axes_}
    return names | {"N"} | ({"kH", "kW"} if operation.kernel else set())


def _axis(name: str, sizes: Mapping[str, int]) -> int:
    return 2 * sizes[name[2:]] if name.startswith("2*") else sizes[name]


def _operation_point(
    operation: Operation, sizes: Mapping[str, int], rng: np.random.Generator
) -> tuple[dict[str, Array], Array, Array]:
    from obligations.lean import parse_term
    from obligations.shadow import tensor, type_shape

    params = {
        p.symbol: tensor(p.symbol, type_shape(parse_term(p.type), sizes), rng)
        for p in operation.parameters
    }
    for symbol in operation.hyper:
        params[symbol] = tensor(symbol, (), rng)
    n_in = sizes["N"] * int(np.prod([_axis(a, sizes) for a in operation.axes[0]]))
    n_out = sizes["N"] * int(np.prod([_axis(a, sizes) for a in operation.axes[1]]))
    return params, rng.normal(size=(1, n_in)), rng.normal(size=(1, n_out))


def _operation_vjp(
    operation: Operation,
    sizes: Mapping[str, int],
    params: Mapping[str, Array],
    x: Array,
    dy: Array,
) -> Array:
    from obligations.shadow import vjp

    return vjp(lambda v: operation.run(sizes, params, v), x, dy)
