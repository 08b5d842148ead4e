"""Speed of the check, as ratios in one run.

``python -m pytest tests/benchmarks -m speed`` measures every block of both nets, JAX included
(extra ``oracle``), and prints the tables. The suite takes the errors of a few blocks.
"""

from __future__ import annotations

import pytest

from benchmarks.roads import (
    Compiled,
    Measured,
    Task,
    at_once,
    complex_steps,
    cpu_seconds,
    emitted,
    error,
    measure,
    tasks,
    total,
    worst,
)

FASTER = 10
"""Complex step against central differences one index at a time, at least."""

TIGHTER = 1000
"""How much tighter the tolerance is that complex step keeps, at least."""

NETS = ("resnet34", "mobilenetv2")
WAYS = ("complex step", "differences", "differences at once")


def tighter(measured: list[Measured]) -> None:
    assert worst(measured, "differences") >= TIGHTER * worst(measured, "complex step")
    # It is the same derivative that was taken.
    assert worst(measured, "differences") < 1e-6
    assert worst(measured, "differences at once") < 1e-6


def faster(measured: list[Measured]) -> None:
    assert total(measured, "differences") >= FASTER * total(measured, "complex step")


def chosen() -> list[Task]:
    """A block of each net."""
    names = {("resnet34", "Id"), ("mobilenetv2", "NoExp")}
    return [t for net in NETS for t in tasks(net) if (t.net, t.name) in names]


def test_complex_step_against_differences_on_some_blocks() -> None:
    some = chosen()
    assert len(some) == 2
    # No time is held here: other tests run beside this one.
    tighter([measure(task) for task in some])


def test_every_gradient_of_the_block_is_taken_in_each_way() -> None:
    for task in chosen():
        wanted = (*task.sites, *task.parameters)
        found = [emitted(task), complex_steps(task), at_once(task)]
        assert [sorted(f) for f in found] == [sorted(wanted)] * 3
        assert sum(v.size for v in found[1].values()) == task.indices
        assert error(found[1], found[0], wanted) < 1e-13


@pytest.mark.speed
def test_complex_step_against_differences(report: list[str]) -> None:
    report += [
        "",
        "CPU seconds for the derivatives of every block, and the worst error against the formulas:",
        "",
        "| net | block | entries | complex step | differences | × | at once | × |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for net in NETS:
        measured = [measure(task) for task in tasks(net)]
        for m in measured:
            report.append(line(net, m.task.name, m.task.indices, [m]))
        entries = sum(m.task.indices for m in measured)
        report.append(line(net, "all", entries, measured))
        errors = (f"{way} {worst(measured, way):.1e}" for way in WAYS)
        report.append(f"{net}, worst error: {', '.join(errors)}")
        faster(measured)
        tighter(measured)


def line(net: str, name: str, entries: int, measured: list[Measured]) -> str:
    ours, single, many = (total(measured, way) for way in WAYS)
    return (
        f"| {net} | {name} | {entries} | {ours:.4f} | {single:.3f} | {single / ours:.0f}"
        f" | {many:.4f} | {many / ours:.1f} |"
    )


@pytest.mark.speed
def test_against_jax_after_compilation(report: list[str]) -> None:
    """All gradients of a block by reverse mode: what complex step is not made for."""
    report += [
        "",
        "CPU milliseconds: JAX's compiled vjp, the emitted formulas in NumPy, complex step:",
        "",
        "| net | block | JAX vjp | to compile | formulas | × JAX | complex step | × JAX |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for net in NETS:
        sums = [0.0, 0.0, 0.0, 0.0]
        for task in tasks(net):
            compiled, wanted = Compiled(task), (*task.sites, *task.parameters)
            assert error(compiled.gradients(), emitted(task), wanted) < 1e-11
            times = [
                cpu_seconds(compiled, 3),
                compiled.seconds_to_compile,
                cpu_seconds(lambda task=task: emitted(task), 3),
                cpu_seconds(lambda task=task: complex_steps(task), 3),
            ]
            report.append(jax_line(net, task.name, times))
            sums = [a + b for a, b in zip(sums, times, strict=True)]
        report.append(jax_line(net, "all", sums))


def jax_line(net: str, name: str, times: list[float]) -> str:
    jax, compiling, formulas, ours = (1000 * t for t in times)
    return (
        f"| {net} | {name} | {jax:.3f} | {compiling:.0f} | {formulas:.2f} | {formulas / jax:.1f}"
        f" | {ours:.2f} | {ours / jax:.0f} |"
    )
