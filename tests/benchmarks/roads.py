"""The derivatives a block's check needs, taken in several ways: the same blocks, sizes, samples.

Per block: the cotangent at every site that a cotangent of the file is at, and the gradient in
every trained parameter.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from obligations.confirm.block import samples
from obligations.description.reader import load
from obligations.ops.base import Array
from obligations.shadow.evaluate import BUDGET, relative_error
from obligations.shadow.forward import (
    Case,
    axes,
    element_count,
    output,
    parameter_gradient,
    run,
    site_gradient,
)
from obligations.shadow.steps import gradient_nodes, reverse, site_parameters
from obligations.statements.tie_file import Derived, derive

STEP = 1e-5
"""The step of central differences at which they err least here."""

Gradients = dict[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """A block under one kind at a sample, and what is wanted of it."""

    net: str
    name: str
    case: Case
    dy: Array
    sites: tuple[str, ...]
    parameters: tuple[str, ...]

    @property
    def smooth(self) -> tuple[str, ...]:
        """The wanted gradients that differences are defined for.

        A pool's windows of masked zeros are ties: the derivative that is meant goes to the first
        of the equals, and a difference on both sides is another number.
        """
        ties = {
            s.inputs[0] for s in self.case.fwd.sites.values() if s.operation.window_gap is not None
        }
        return tuple(x for x in (*self.sites, *self.parameters) if x not in ties)

    @property
    def indices(self) -> int:
        """How many entries the wanted gradients have."""
        sites = (self.case.fwd.sites[s].shape for s in self.sites)
        return sum(element_count(s, self.case.sizes) for s in sites) + sum(
            self.case.parameters[p].size for p in self.parameters
        )


def tasks(net: str, seed: int = 0) -> Iterator[Task]:
    """Every block of a net under each kind, at the samples that ``check`` evaluates it at."""
    derived: Derived = derive(load(net))
    for section in derived.sections.values():
        for at in samples(derived.net, section, (seed,)):
            case, kind = at.point.case, at.point.kind
            wanted = {
                o.site: None
                for o in derived.obligations
                if o.kind == "cotangent" and o.block == section.block.name and kind.name in o.kinds
            }
            trained = [p.lean for s in case.fwd.sites.values() for p in s.parameters if p.trained]
            yield Task(
                net,
                kind.name,
                case,
                at.point.dy,
                tuple(s for s in wanted if s in case.fwd.sites),
                tuple(trained),
            )


# -- ways ---------------------------------------------------------------------------------------


def complex_steps(task: Task) -> Gradients:
    """As ``check`` takes them: every index by its own complex step, many at once."""
    case, dy = task.case, task.dy
    found = {site: site_gradient(case, site, dy) for site in task.sites}
    return found | {name: parameter_gradient(case, name, dy) for name in task.parameters}


def _functions(task: Task) -> Iterator[tuple[str, Array, Callable[[Array], Array]]]:
    """Per gradient its name, where it is taken, and the output as a function of that."""
    case = task.case
    for site in task.sites:
        zero = np.zeros((1, element_count(case.fwd.sites[site].shape, case.sizes)))
        yield site, zero, lambda v, site=site: output(case, bump={site: v})
    for name in task.parameters:
        value = case.parameters[name]
        yield name, value, lambda v, name=name: output(case, parameters={name: v})


def one_by_one(task: Task) -> Gradients:
    """Central differences, one index at a time: two evaluations an index."""
    found: Gradients = {}
    for name, base, f in _functions(task):
        moved = base.copy()
        flat, slopes = moved.reshape(-1), np.empty(base.size)
        for i in range(flat.size):
            kept = flat[i]
            flat[i] = kept + STEP
            above = f(moved)
            flat[i] = kept - STEP
            below = f(moved)
            flat[i] = kept
            slopes[i] = ((above - below) * task.dy).sum() / (2 * STEP)
        found[name] = slopes.reshape(base.shape)
    return found


def at_once(task: Task, budget: int = BUDGET) -> Gradients:
    """Central differences, as many indices at once as complex steps are."""
    largest = max(element_count(s.shape, task.case.sizes) for s in task.case.fwd.sites.values())
    found: Gradients = {}
    for name, base, f in _functions(task):
        flat, slopes = base.reshape(-1), np.empty(base.size)
        chunk = max(1, min(flat.size, budget // (12 * largest)))
        for start in range(0, flat.size, chunk):
            size = min(chunk, flat.size - start)
            steps = np.zeros((size, flat.size))
            steps[np.arange(size), start + np.arange(size)] = STEP
            above, below = (
                f((flat + sign * steps).reshape(size, *base.shape[1:])) for sign in (1, -1)
            )
            slopes[start : start + size] = ((above - below) * task.dy).sum(axis=-1) / (2 * STEP)
        found[name] = slopes.reshape(base.shape)
    return found


def emitted(task: Task) -> Gradients:
    """The formulas themselves: the chain rule with the table's steps, then the gradient nodes."""
    case = task.case
    values = run(case)
    cotangents = reverse(case, values, task.dy)
    found = {site: cotangents[site] for site in task.sites}
    for site in case.fwd.sites.values():
        if not any(p.trained for p in site.parameters):
            continue
        nodes = gradient_nodes(
            site.operation,
            axes(site, case.sizes),
            site_parameters(case, site),
            [values[name] for name in site.inputs],
            cotangents[site.name],
        )
        found |= {p.lean: nodes[p.symbol] for p in site.parameters if p.trained}
    return found


class Compiled:
    """JAX's reverse mode of its own forward, all gradients of a block in one compiled function."""

    def __init__(self, task: Task) -> None:
        import jax
        from oracle.blocks import bare, output as forward

        fixed = bare(task.case.parameters)

        def value(moved: Mapping[str, Any], bump: Mapping[str, Any], x: Any) -> Any:
            return forward(task.case, {**fixed, **moved}, x, bump)

        def gradients(moved: Any, bump: Any, x: Any, dy: Any) -> Any:
            _, back = jax.vjp(lambda m, b: value(m, b, x), moved, bump)
            return back(dy)

        moved = {name: fixed[name] for name in task.parameters}
        bump = {
            s: np.zeros(element_count(task.case.fwd.sites[s].shape, task.case.sizes))
            for s in task.sites
        }
        put = jax.device_put
        self._arguments = put(moved), put(bump), put(task.case.x[0]), put(task.dy[0])
        start = time.perf_counter()
        self._run = jax.jit(gradients).lower(*self._arguments).compile()
        self.seconds_to_compile = time.perf_counter() - start

    def __call__(self) -> Any:
        import jax

        return jax.block_until_ready(self._run(*self._arguments))

    def gradients(self) -> Gradients:
        """By name, flat."""
        parameters, sites = self()
        return {k: np.asarray(v).reshape(1, -1) for k, v in {**parameters, **sites}.items()}


# -- what comes of it ---------------------------------------------------------------------------


def error(found: Gradients, wanted: Gradients, names: Iterable[str]) -> float:
    """The worst error of a tensor, relative to its largest entry.

    A tensor that theory makes zero is held to a tenth of the largest entry of them all.
    """
    scale = 0.1 * max(float(np.abs(v).max()) for v in wanted.values())
    pairs = ((found[name].reshape(-1), wanted[name].reshape(-1)) for name in names)
    return max(relative_error(one, other, scale) for one, other in pairs)


def cpu_seconds(f: Callable[[], object], repeat: int, enough: float = 0.02) -> float:
    """The least CPU time of a call in ``repeat`` rounds of calls that take ``enough`` seconds.

    CPU time, of all threads, is not that of others on the machine.
    """
    f()
    calls, best = 1, float("inf")
    for _ in range(repeat):
        while True:
            start = time.process_time()
            for _ in range(calls):
                f()
            spent = time.process_time() - start
            if spent >= enough:
                break
            calls *= 4
        best = min(best, spent / calls)
    return best


@dataclass(slots=True)
class Measured:
    """One block: CPU seconds and worst error against the formulas, by way."""

    task: Task
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)


def measure(task: Task) -> Measured:
    """Complex step and both kinds of differences, in turn, on one block."""
    found = Measured(task)
    wanted = emitted(task)
    found.seconds["formulas"] = cpu_seconds(lambda: emitted(task), 3)
    for name, way in (("complex step", complex_steps), ("differences at once", at_once)):
        found.errors[name] = error(way(task), wanted, task.smooth)
        found.seconds[name] = cpu_seconds(lambda way=way: way(task), 3)
    start = time.process_time()
    differences = one_by_one(task)
    found.seconds["differences"] = time.process_time() - start
    found.errors["differences"] = error(differences, wanted, task.smooth)
    # Once more: the first may have met a colder machine than the last.
    again = cpu_seconds(lambda: complex_steps(task), 3)
    found.seconds["complex step"] = max(found.seconds["complex step"], again)
    return found


def total(measured: list[Measured], way: str) -> float:
    """CPU seconds of all blocks."""
    return sum(m.seconds[way] for m in measured)


def worst(measured: list[Measured], way: str) -> float:
    """The worst error of all blocks."""
    return max(m.errors[way] for m in measured)
