"""Audits of steps of known truth: right ones are clean, every break is told at its line."""

import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from described import NEAR, failing, plain, small, told
from hypothesis import given, settings, strategies as st
from seeds import seeds, slow
from step_mutants import mutant
from step_renderer import Layer, Net, Step, loss, render, shapes

from obligations.audit.steps import Audit, audit, fits, summary
from obligations.errors import InputError, ObligationsError, Source
from obligations.stablehlo import Operation, Recognised, evaluate, read, recognise

OPTIMIZERS = ("sgd", "momentum", "adam", "rmsprop")


def audited(text: str, name: str = "tiny", numbers: bool | None = False, **options: str) -> Audit:
    return audit(small(name, **options), Source("step.mlir", text), numbers=numbers)


# ---- right ones


@pytest.mark.parametrize("seed", range(6))
def test_every_idiom_of_a_right_step_is_clean(seed: int) -> None:
    net = plain(small("tiny"), bias=("zero", "absent", "present")[seed % 3])
    replicas = 4 * (seed % 2)
    step = render(
        net, seed, optimizer=OPTIMIZERS[seed % 4], replicas=replicas, narrow=seed % 3 == 2
    )
    found = audited(step.text, numbers=True)
    assert found.ok, told(found)
    rows = {row.convention: row for row in found.rows}
    tensors = 30 if seed % 3 == 2 else 23
    assert rows["cotangents"].said == f"holds at {tensors} of {tensors} tensors"
    assert rows["numbers"].total == tensors
    assert OPTIMIZERS[seed % 4] in rows["optimizer"].note
    assert ("all-reduce" in rows) == bool(replicas)
    assert ("bf16" in rows["precision"].note) == (seed % 3 == 2)


@pytest.mark.parametrize(
    ("name", "tensors", "sums", "convolutions"),
    [("resnet34", 110, 16, 36), ("mobilenetv2", 158, 10, 52)],
)
def test_the_whole_built_in_nets(name: str, tensors: int, sums: int, convolutions: int) -> None:
    step = render(plain(small(name), 3), 1, optimizer="momentum")
    # The numbers of the other net are compared where it has its dropout.
    found = audited(step.text, name, numbers=name == "resnet34")
    assert found.ok, told(found)
    said = {row.convention: row.said for row in found.rows}
    if name == "resnet34":
        assert said["numbers"] == f"holds at {tensors} of {tensors} tensors"
    for convention in ("parameters", "cotangents", "gradient nodes", "census"):
        assert said[convention] == f"holds at {tensors} of {tensors} tensors"
    assert said["fan-in"] == f"holds at {sums} of {sums} sums"
    assert said["padding"] == f"holds at {convolutions} of {convolutions} convolutions"
    # Every convention of the description has its row, those that are only recorded included.
    stated = {row.convention: row.stated for row in found.rows}
    for convention in small(name).conventions.values():
        assert stated[convention.name] == convention.value


@pytest.mark.slow
def test_a_dropout_site_is_held_against_the_option() -> None:
    step = render(plain(small("mobilenetv2", dropout="site")), 2)
    found = audited(step.text, "mobilenetv2", True, dropout="site")
    assert found.ok, told(found)
    assert next(r.said for r in found.rows if r.convention == "numbers").startswith("holds at 158")
    without = audited(step.text, "mobilenetv2")
    said = [m.message() for _, m in without.mismatches]
    assert any("dropout" in x for x in said)
    bare = render(plain(small("mobilenetv2")), 2)
    missing = audited(bare.text, "mobilenetv2", dropout="site")
    assert any("no dropout" in m.message() for _, m in missing.mismatches)


# ---- breaks of a net's layers


def changed(net: Net, layer: str, **fields: object) -> Net:
    """The net with one layer changed."""
    layers = tuple(replace(x, **fields) if x.out == layer else x for x in net.layers)  # type: ignore[arg-type]
    assert layers != net.layers
    return replace(net, layers=layers)


def without_skip(net: Net, layer: str) -> Net:
    """The net without a sum; what read it reads its first operand."""
    gone = next(x for x in net.layers if x.out == layer)
    layers: list[Layer] = []
    for x in net.layers:
        if x.out != layer:
            read = tuple(gone.inputs[0] if i == layer else i for i in x.inputs)
            layers.append(replace(x, inputs=read))
    return replace(net, layers=tuple(layers))


def swapped_strides(net: Net) -> Net:
    return changed(changed(net, "stem_stc", stride=1), "d0_c1", stride=4, pads=(0, 0))


NET_BREAKS: dict[str, tuple[str, Callable[[Net], Net], set[str], str]] = {
    "phase of a strided site": (
        "tiny",
        lambda n: changed(n, "d0_c1", pads=(0, 1)),
        {"padding", "gradient nodes", "input gradients"},
        "d0.c1: the first kernel centre meets row 1×1, expected 0×0",
    ),
    "phase at stride 1": (
        "tiny",
        lambda n: changed(n, "i0_c2", pads=(0, 2)),
        {"padding", "gradient nodes", "input gradients"},
        "i0.c2: the first kernel centre meets row 1×1, expected 0×0",
    ),
    "phase of a depthwise": (
        "tiny",
        lambda n: changed(n, "m0_dc", pads=(2, 0)),
        {"padding", "gradient nodes", "input gradients"},
        "m0.dc: the first kernel centre meets row -1×-1, expected 0×0",
    ),
    "padding of the stem": (
        "mobilenetv2",
        lambda n: changed(n, "stem_stc", pads=(1, 0)),
        {"padding", "gradient nodes"},
        "stem.stc: the first kernel centre meets row 0×0, expected 1×1",
    ),
    "stride": (
        "tiny",
        swapped_strides,
        {"strides", "padding", "gradient nodes", "input gradients", "BatchNorm divisor"},
        "stem.stc: stride 1×1, expected 2×2",
    ),
    "kernel": (
        "tiny",
        lambda n: changed(n, "i0_c1", kernel=5, pads=(2, 2)),
        {"parameters", "kernels", "gradient nodes", "input gradients"},
        "i0.c1: kernel 5×5, expected 3×3",
    ),
    "pool window": (
        "resnet34",
        lambda n: changed(n, "stem_out", kernel=2, pads=(0, 0)),
        {"pool", "pool backward"},
        "stem.out: window 2×2, expected 3×3",
    ),
    "pool phase": (
        "resnet34",
        lambda n: changed(n, "stem_out", pads=(0, 1)),
        {"pool", "pool backward"},
        "stem.out: the first window ends at row 2×2, expected 1×1",
    ),
    "activation": (
        "tiny",
        lambda n: changed(n, "m0_er", kind="relu"),
        {"activation", "masks"},
        "m0.er: relu, expected relu6",
    ),
    "missing skip": (
        "tiny",
        lambda n: without_skip(n, "i0_a"),
        {"forward", "fan-in"},
        "i0.a: no add, expected add of i0.n2",
    ),
    "skip of another value": (
        "tiny",
        lambda n: changed(n, "i0_a", inputs=("i0_n2", "i0_r1")),
        {"forward", "fan-in"},
        "i0.a: the add reads i0.n2",
    ),
    "biases": (
        "resnet34",
        lambda n: changed(n, "a1_c2", params=("s1b1W2", "s1b1b2"), bias="s1b1b2"),
        {"biases", "census"},
        "a1.c2: the bias is %s1b1b2, expected none",
    ),
    "instance statistics": (
        "tiny",
        lambda n: replace(n, statistics="instance"),
        {"batchnorm", "BatchNorm divisor"},
        "i0.n1: instance statistics over [2, 3], expected batch statistics over [0, 2, 3]",
    ),
    "no smoothing": (
        "tiny",
        lambda n: replace(n, alpha=0.0),
        {"loss"},
        "loss: α is 0, expected between 0 and 1",
    ),
}


@pytest.mark.parametrize("what", NET_BREAKS)
def test_a_step_of_another_net_differs_where_it_is_another(what: str) -> None:
    name, change, conventions, message = NET_BREAKS[what]
    net = change(plain(small(name)))
    found = audited(render(net, 3).text, name)
    assert conventions <= failing(found), told(found)
    hit = [m for _, m in found.mismatches if message in m.message()]
    assert hit, told(found)
    # At its line: the layer's own operation.
    words = {"padding", "strides", "kernels", "pool", "activation"} & conventions
    if words:
        line = found.source.line(hit[0].line)
        assert re.search(r"convolution|reduce_window|maximum", line), line
    # What is not about it stays whole.
    if what not in ("stride", "instance statistics", "missing skip", "skip of another value"):
        assert failing(found) <= conventions | {"saved values"}, failing(found)


# ---- breaks of the text


@dataclass(frozen=True)
class Break:
    """A changed text, the line of the change, and the conventions that must name it."""

    text: str
    line: int
    conventions: frozenset[str]


@dataclass(frozen=True)
class Known:
    """A right step, read and recognised."""

    step: Step
    found: Recognised
    rows: tuple[str, ...]
    operations: dict[str, Operation]
    order: dict[str, int]

    def type_of(self, name: str) -> str:
        op = self.operations.get(name)
        return str(op.result_types[0]) if op else str(self.step.arguments.get(name))

    def like(self, name: str, among: set[str], before: int) -> str | None:
        """Another name of the same type whose value is one of ``among``."""
        canonical = self.found.canonical
        for other in self.order:
            if self.order[other] < before and other != name and other in self.operations:
                same = self.type_of(other) == self.type_of(name)
                if same and canonical[other] in among - {canonical[name]}:
                    return other
        return None

    def rewired(self, line: int, old: str, new: str, conventions: set[str]) -> Break:
        """The operation at a line reading another value."""
        rows = list(self.rows)
        head, equals, tail = rows[line - 1].partition("=")
        rows[line - 1] = head + equals + re.sub(rf"%{old}\b", f"%{new}", tail)
        assert rows[line - 1] != self.rows[line - 1]
        return Break("\n".join(rows), line, frozenset(conventions))

    def edited(self, line: int, old: str, new: str, conventions: set[str]) -> Break:
        """A piece of a line, or of the lines the operation goes on over, replaced."""
        rows = list(self.rows)
        at = line - 1
        while old not in rows[at]:
            at += 1
        assert at < line + 4
        rows[at] = rows[at].replace(old, new, 1)
        return Break("\n".join(rows), line, frozenset(conventions))

    def constants(self, number: float) -> Iterator[Operation]:
        for op in self.operations.values():
            if op.kind == "constant" and op.attributes["value"].splat == number:  # type: ignore[attr-defined]
                yield op


@cache
def known(name: str, seed: int) -> Known:
    step = render(plain(small(name), 3), seed)
    main = read(Source("a", step.text)).main
    operations = {name: op for op in main.operations for name in op.results}
    order = {name: op.line for name, op in operations.items()}
    found = recognise(main)
    return Known(step, found, tuple(step.text.split("\n")), operations, order)


def _uses(k: Known, first: int, last: int, value: str) -> Iterator[tuple[int, str]]:
    """Operations within lines that read a value directly: line and the name they use."""
    for op in k.operations.values():
        if first <= op.line <= last:
            for name in dict.fromkeys(op.operands):
                if k.found.canonical[name] == value:
                    yield op.line, name


def read_moved(k: Known) -> Iterator[Break]:
    """A gradient reads another cotangent."""
    cotangents = {s.incoming for s in k.found.steps} | {f.value for f in k.found.fan_ins}
    for g in k.found.gradients.values():
        for line, name in _uses(k, g.line, g.line, str(g.cotangent)):
            other = k.like(name, cotangents, g.line)
            once = list(k.found.canonical.values()).count(g.value) == 1
            if other is not None:
                # A sum of a cotangent may also be one of a BatchNorm's backward.
                rows = {"cotangents"} if once else {"cotangents", "backward steps"}
                yield k.rewired(line, name, other, rows)


def step_moved(k: Known) -> Iterator[Break]:
    """A step goes back from another cotangent."""
    cotangents = {s.incoming for s in k.found.steps} | {f.value for f in k.found.fan_ins}
    for s in k.found.steps:
        if s.kind in ("mask", "conv", "depthwise", "dense"):
            for line, name in _uses(k, s.attributes["from_line"], s.line, s.incoming):
                other = k.like(name, cotangents, line)
                if other is not None and k.found.canonical[other] != s.value:
                    yield k.rewired(line, name, other, {"backward steps"})


def saved_swapped(k: Known) -> Iterator[Break]:
    """A mask, or a weight's gradient, reads another saved value."""
    forward = {s.value for s in k.found.sites}
    for s in k.found.steps:
        if s.kind == "mask":
            tests = [
                (op.line, n)
                for op in k.operations.values()
                if op.kind == "compare"
                for n in op.operands
                if k.found.canonical[n] == s.saved
            ]
            first, name = tests[0]
            other = k.like(name, forward, first)
            if other is not None:
                yield k.rewired(first, name, other, {"saved values"})
    for g in k.found.gradients.values():
        if g.kind in ("conv", "dense"):
            for line, name in _uses(k, g.line, g.line, str(g.x)):
                other = k.like(name, forward, line)
                if other is not None:
                    yield k.rewired(line, name, other, {"saved inputs"})


def weight_swapped(k: Known) -> Iterator[Break]:
    """A step goes back through another weight of the same shape."""
    shapes, gradients = k.found.parameters, k.found.gradients
    first, last = k.step.backward
    for weight in {str(s.weight) for s in k.found.steps if s.kind in ("conv", "depthwise", "bn")}:
        alike = [
            p
            for p in shapes
            if p != weight
            and shapes[p] == shapes[weight]
            and gradients[p].role == gradients[weight].role
        ]
        for line, name in _uses(k, first, last, weight):
            if alike and name == weight:
                yield k.rewired(line, name, alike[0], {"weights of steps", "backward steps"})


def mask_kind(k: Known) -> Iterator[Break]:
    """A mask that is open elsewhere."""
    for op in k.operations.values():
        if op.kind == "and":
            yield k.rewired(op.line, op.operands[1], op.operands[0], {"masks"})
        elif op.kind == "compare":
            old = str(op.attributes["direction"])
            new = {"GT": "GE", "LT": "LE", "LE": "LT", "GE": "GT"}[old]
            yield k.edited(op.line, f" {old},", f" {new},", {"masks"})


def fan_in(k: Known) -> Iterator[Break]:
    """A fan-in that adds one cotangent twice, or leaves one out."""
    for f in k.found.fan_ins:
        op = k.operations[f.value]
        a, b = op.operands
        yield k.rewired(f.line, b, a, {"fan-in"})
        yield k.rewired(f.line, a, b, {"fan-in"})
        kind = k.type_of(a)
        yield k.edited(
            f.line,
            k.rows[f.line - 1].partition("= ")[2],
            f"stablehlo.reshape %{a} : ({kind}) -> {kind}",
            {"fan-in"},
        )


def phase(k: Known) -> Iterator[Break]:
    """A backward convolution shifted by a row and a column."""
    low, _ = k.step.backward
    for op in k.operations.values():
        if op.kind == "convolution" and op.line > low:
            (a, b), _other = op.attributes["pad"]  # type: ignore[misc, index]
            old = f"[[{a}, {b}], [{a}, {b}]]"
            new = f"[[{a + 1}, {b - 1}], [{a + 1}, {b - 1}]]"
            yield k.edited(op.line, old, new, {"input gradients", "gradient nodes"})


def rows_and_columns(k: Known) -> Iterator[Break]:
    """A backward convolution, not 1×1, whose one operand has its two axes exchanged."""
    low, _ = k.step.backward
    for op in k.operations.values():
        if op.kind != "convolution" or op.line <= low:
            continue
        numbers, (_, kernel) = op.attributes["dim_numbers"], op.operand_types  # type: ignore[misc]
        taps = [kernel.shape[numbers[1].index(i)] for i in (0, 1)]  # type: ignore[index]
        if taps[0] == taps[1] > 1:
            old = f"x[{', '.join(map(str, numbers[1]))}]"  # type: ignore[index]
            other = {0: 1, 1: 0}
            new = f"x[{', '.join(str(other.get(d, d)) for d in numbers[1])}]"  # type: ignore[index]
            yield k.edited(op.line, old, new, {"input gradients", "gradient nodes"})


def exchanged(k: Known) -> Iterator[Break]:
    """A forward convolution, not 1×1, whose one operand has its two axes exchanged."""
    low, _ = k.step.backward
    for op in k.operations.values():
        if op.kind != "convolution" or op.line > low:
            continue
        numbers, (_, kernel) = op.attributes["dim_numbers"], op.operand_types  # type: ignore[misc]
        if kernel.shape[numbers[1].index(0)] > 1:  # type: ignore[index]
            swapped = {0: 1, 1: 0}
            for part, lead in ((numbers[0], "["), (numbers[1], "x[")):  # type: ignore[index]
                old = f"{lead}{', '.join(map(str, part))}]"
                new = f"{lead}{', '.join(str(swapped.get(d, d)) for d in part)}]"
                yield k.edited(op.line, old, new, {"kernels"})


def divisor(k: Known) -> Iterator[Break]:
    """A BatchNorm that divides by another count, forward or backward."""
    counts = {float(s.attributes["count"]) for s in k.found.sites if s.kind == "bn"}
    rows = {"BatchNorm divisor", "BatchNorm backward", "gradient nodes"}
    for n in counts:
        for number in (n, 1 / n):
            for op in k.constants(number):
                text = op.attributes["value"].text  # type: ignore[attr-defined]
                yield k.edited(op.line, f"<{text}>", f"<{number * 2!r}>", rows)


def epsilon(k: Known) -> Iterator[Break]:
    """Another ε at one place."""
    for op in k.constants(1e-3):
        text = op.attributes["value"].text  # type: ignore[attr-defined]
        yield k.edited(
            op.line, f"<{text}>", "<0.0011>", {"ε", "BatchNorm backward", "gradient nodes"}
        )


def loss_numbers(k: Known) -> Iterator[Break]:
    """α or 1/B lost, or the sign of the loss's cotangent turned."""
    assert k.found.loss is not None
    first, last = k.order[k.found.loss.softmax], k.found.loss.line
    for op in k.operations.values():
        if first <= op.line <= last:
            if op.kind == "constant":
                text = op.attributes["value"].text  # type: ignore[attr-defined]
                for number in (0.0, 1.0):
                    if op.attributes["value"].splat != number:  # type: ignore[attr-defined]
                        yield k.edited(op.line, f"<{text}>", f"<{number!r}>", {"loss"})
            elif op.kind == "subtract":
                yield k.edited(op.line, "subtract", "add", {"loss"})


def sign(k: Known) -> Iterator[Break]:
    """A term of a BatchNorm's input gradient with the other sign."""
    for s in k.found.steps:
        if s.kind == "bn":
            for op in k.operations.values():
                inside = s.attributes["from_line"] < op.line <= s.line
                if (
                    inside
                    and op.kind == "subtract"
                    and k.found.canonical[op.results[0]]
                    not in {
                        # Not the deviation, which stands here where it is computed again.
                        k.found.canonical[o]
                        for x in k.operations.values()
                        if x.kind == "multiply" and len(set(x.operands)) == 1
                        for o in x.operands
                    }
                ):
                    yield k.edited(
                        op.line, "subtract", "add", {"BatchNorm backward", "backward steps"}
                    )


def average(k: Known) -> Iterator[Break]:
    """The average over another number of pixels, forward or backward."""
    for number in (64.0, 1 / 64):
        for op in k.constants(number):
            text = op.attributes["value"].text  # type: ignore[attr-defined]
            rows = {"average", "average backward"}
            yield k.edited(op.line, f"<{text}>", f"<{number * 2!r}>", rows)


def more(k: Known) -> Iterator[Break]:
    """A product with a cotangent that the description does not speak of."""
    rows = list(k.rows)
    step = next(s for s in k.found.steps if s.kind == "mask")
    at = k.order[step.value]
    name, kind = step.value, k.type_of(step.value)
    rows.insert(at, f"    %besides = stablehlo.multiply %{name}, %{name} : {kind}")
    yield Break("\n".join(rows), at + 1, frozenset({"nothing else"}))


TEXT_BREAKS = (
    read_moved, step_moved, saved_swapped, weight_swapped, mask_kind, fan_in, phase,
    rows_and_columns, exchanged, divisor, epsilon, loss_numbers, sign, average, more,
)  # fmt: skip


@pytest.mark.parametrize("seed", [2, slow(5)])
@pytest.mark.parametrize("kind", TEXT_BREAKS, ids=lambda f: f.__name__)
def test_every_break_is_told_at_its_line(
    kind: Callable[[Known], Iterator[Break]], seed: int
) -> None:
    k = known("tiny", seed)
    broken = list(kind(k))
    assert broken
    rng = random.Random(seed)
    for b in rng.sample(broken, min(2, len(broken))):
        found = audited(b.text)
        assert failing(found) & b.conventions, (b.line, k.rows[b.line - 1], told(found))
        near = [m for row, m in found.mismatches if abs(m.line - b.line) <= NEAR]
        assert near, (b.line, k.rows[b.line - 1], told(found))


def test_exchanged_axes_are_told_at_the_forward_convolution() -> None:
    for b in exchanged(known("tiny", 2)):
        found = audited(b.text)
        lines = {m.line for row, m in found.mismatches if row.convention == "kernels"}
        assert lines == {b.line}, told(found)
    # And where an operand is transposed before.
    k = known("tiny", 2)
    low, _ = k.step.backward
    for op in (o for o in k.operations.values() if o.kind == "convolution" and o.line < low):
        kernel = op.operand_types[1]
        if kernel.shape[-1] > 1:
            rows, name = list(k.rows), op.operands[1]
            rows[op.line - 1] = rows[op.line - 1].replace(f"%{name}", "%besides", 1)
            what = f"stablehlo.transpose %{name}, dims = [0, 1, 3, 2]"
            rows.insert(op.line - 1, f"    %besides = {what} : ({kernel}) -> {kernel}")
            found = audited("\n".join(rows))
            mine = [m for row, m in found.mismatches if row.convention == "kernels"]
            assert [m.line for m in mine] == [op.line + 1], told(found)
            assert "rows of the kernel meet columns of the result, expected in" in mine[0].message()


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_an_update_that_adds_the_gradient_is_told(optimizer: str, every: int) -> None:
    step = render(plain(small("tiny")), 3, optimizer=optimizer, replicas=2)
    rows = step.text.split("\n")
    _, high = step.backward
    updates = [at for at in range(high, len(rows)) if "stablehlo.subtract" in rows[at]]
    assert len(updates) == 23
    for at in updates[::every]:
        other = [*rows[:at], rows[at].replace("subtract", "add"), *rows[at + 1 :]]
        found = audited("\n".join(other))
        assert failing(found) == {"descent"}, told(found)
        ((_, mismatch),) = found.mismatches
        assert mismatch.line == at + 1
        assert mismatch.message().endswith("the gradient is added, expected subtracted")
    # Two signs more are none.
    at = updates[-1]
    new, old, minus, shape = re.findall(r"%[\w.]+|tensor<.*", rows[at])[:4]
    two = [
        f"%neg = stablehlo.negate {minus} : {shape}",
        f"{new} = stablehlo.add {old}, %neg : {shape}",
    ]
    assert audited("\n".join([*rows[:at], *two, *rows[at + 1 :]])).ok


def reporting(seed: int) -> Step:
    return render(plain(small("tiny")), seed, optimizer="adam", report=True)


@pytest.mark.parametrize("seed", range(4))
def test_the_reported_loss_and_statistics_are_held(seed: int) -> None:
    step = reporting(seed)
    found = audited(step.text)
    assert found.ok, told(found)
    said = {row.convention: row for row in found.rows}
    assert said["reported loss"].said == "holds at 2 of 2 coefficients"
    assert said["returned statistics"].said == "holds at 7 of 7 sites"
    assert "other results" not in said  # the renderer keeps the new states to itself
    # What is held is the loss: its value is the one computed apart.
    net = plain(small("tiny"))
    rng = np.random.default_rng(seed)
    given = {n: rng.uniform(0.1, 1.0, shape) for n, shape in step.arguments.items()}
    given["onehot"] /= given["onehot"].sum(axis=1, keepdims=True)
    have = evaluate(read(Source("a", step.text)).main, given).results[-len(step.reported)]
    x = given["x"].reshape(shapes(net)["x"])
    want = loss(net, x, given["onehot"], given)
    assert np.allclose(have, want, rtol=1e-9)


REPORT_EDITS = (
    (r"stablehlo\.subtract", "stablehlo.add"),
    (r"stablehlo\.add %", "stablehlo.subtract %"),
    (r"stablehlo\.negate", "stablehlo.abs"),
    (r"stablehlo\.log ", "stablehlo.exponential "),
    (r"stablehlo\.multiply", "stablehlo.add"),
    (r"(constant dense<)([0-9.e+-]+)>", r"\g<1>7.5>"),
)


@pytest.mark.parametrize("seed", seeds(2))
def test_every_change_of_what_is_reported_is_told(seed: int) -> None:
    step = reporting(seed)
    rows = step.text.split("\n")
    (first,) = (i for i, row in enumerate(rows) if "stablehlo.log " in row)
    last = next(i for i, row in enumerate(rows) if row.startswith("    return "))
    mean = next(v for k, v in step.reported.items() if k.endswith("mean"))
    variance = list(step.reported.values())[2]
    statistics = next(i for i, row in enumerate(rows) if f"%{mean} =" in row)
    end = next(i for i, row in enumerate(rows) if f"%{variance} =" in row)
    tried = 0
    for at in range(first, end + 1):
        for old, new in REPORT_EDITS:
            other = re.sub(old, new, rows[at])
            zero = re.search(r"dense<0\.0>", rows[at])
            if other == rows[at] or zero or "%u = " in rows[at]:
                continue
            tried += 1
            found = audited("\n".join([*rows[:at], other, *rows[at + 1 :]]))
            own = {"reported loss", "returned statistics"} & failing(found)
            notes = {r.convention: r.note for r in found.rows if not r.judged}
            note = f"{rows[at]}: {told(found)}"
            # Of a loss that is of another form it is said that it is not checked.
            assert own or "not checked" in notes.get("reported loss", ""), note
            assert at < statistics or "returned statistics" in own, note
    assert tried >= 10
    # Two results exchanged, or one that is another's.
    i0 = step.reported["i0_n1 mean"], step.reported["i0_n2 mean"]
    pairs = (i0, (step.reported["i0_n1 mean"], step.reported["i0_n1 variance"]))
    for a, b in pairs:
        swapped = {f"%{a}": f"%{b}", f"%{b}": f"%{a}"}
        names = re.sub(r"%[\w.]+", lambda m, s=swapped: s.get(m[0], m[0]), rows[last])  # type: ignore[misc]
        for line in (names, rows[last].replace(f"%{a},", f"%{b},")):
            found = audited("\n".join([*rows[:last], line, *rows[last + 1 :]]))
            assert failing(found) == {"returned statistics"}, told(found)


@pytest.mark.parametrize("seed", seeds(2))
def test_what_changes_a_gradient_is_told_and_its_numbers_differ(seed: int) -> None:
    """Random changes: told exactly when something the description speaks of is another."""
    net = plain(small("tiny"))
    step = render(net, seed)
    rng = np.random.default_rng(seed)
    main = read(Source("a", step.text)).main
    arguments = {a.name: rng.normal(0, 1.5, a.type.shape) for a in main.arguments}
    before = evaluate(main, arguments).results
    different = 0
    for number in range(5):
        lines = None if number % 2 else (3, step.backward[0])
        broken = mutant(step, random.Random(100 * seed + number), lines)
        after = evaluate(read(Source("a", broken.text)).main, arguments).results
        pairs = zip(before, after, strict=True)
        same = all(np.allclose(a, b, rtol=1e-9, atol=1e-12, equal_nan=True) for a, b in pairs)
        found = audited(broken.text, numbers=True)
        note = f"line {broken.line}: {broken.what}: {told(found)}"
        assert same or not found.ok, note
        if not same:
            different += 1
            row = next(r for r in found.rows if r.convention == "numbers")
            assert row.mismatches or row.note.startswith("not evaluated"), note
    assert different >= 3


def test_replicas_and_precision() -> None:
    net = plain(small("tiny"))
    text = render(net, 4, replicas=2, narrow=True).text
    assert audited(text).ok
    found = audited(text, precision="f32")
    assert failing(found) == {"precision"}
    row = next(r for r in found.rows if r.convention == "precision")
    assert len(row.mismatches) == text.count("stablehlo.convert")
    assert (
        row.mismatches[0].message().endswith("converted from f32 to bf16, expected f32 throughout")
    )
    group = "dense<[[0, 1]]> : tensor<1x2xi64>"
    odd = text.replace(group, "dense<[[0, 1, 2]]> : tensor<1x3xi64>", 1)
    found = audited(odd)
    assert failing(found) == {"all-reduce"}
    ((_, mismatch),) = found.mismatches
    assert mismatch.message().endswith("replicas: 3, expected 2")
    assert "all_reduce" in odd.split("\n")[mismatch.line - 1]


# ---- breaks of the description


@pytest.mark.parametrize(
    ("old", "new", "conventions", "message", "count"),
    [
        ("W1,b1 ← %dn1   g1,bt1 ← %dr1   W2", "W1,b1 ← %dr1   g1,bt1 ← %dr1   W2",
         {"cotangents"}, "s1b0W1 (a0.c1): reads", 16),
        ("%dn2 = bnBatchBack(g2, c2) ", "%dn2 = bnBatchBack(g2, c1) ",
         {"saved values"}, "expected a0.c1", 13),
        ("%dx  = addVB(%dc1, %da)\n    W1,b1", "%dx  = addVB(%dc1, %dc1)\n    W1,b1",
         {"fan-in"}, "expected", 13),
        ("padding     symmetric", "padding     XLA", {"padding"},
         "stem.stc: the first kernel centre meets row 0×0, expected 1×1", 7),
        ("biases      off in the artifact", "biases      on in the artifact", {"biases"},
         "stem.stc: the bias is zero, expected %sb", 36),
        ("label-smoothed cross-entropy at", "cross-entropy at", {"loss"}, "loss", 1),
    ],
)  # fmt: skip
def test_a_description_that_says_otherwise(
    old: str, new: str, conventions: set[str], message: str, count: int
) -> None:
    """The artifact is right; the description is not."""
    from obligations.description.reader import net_source

    text = net_source("resnet34").text
    assert old in text
    net = small("resnet34", text.replace(old, new))
    step = known("resnet34", 1).step
    found = audit(net, Source("step.mlir", step.text), numbers=False)
    assert conventions <= failing(found), told(found)
    of_it = [m.message() for row, m in found.mismatches if row.convention in conventions]
    assert any(message in m for m in of_it), told(found)
    rows = {row.convention: row for row in found.rows}
    assert rows[min(conventions)].failing >= count or min(conventions) != "cotangents"


def test_a_convention_that_cannot_be_told_is_refused() -> None:
    from obligations.description.reader import net_source

    text = net_source("resnet34").text.replace("off in the artifact", "perhaps in the artifact")
    with pytest.raises(InputError, match="what biases 'perhaps in the artifact' says"):
        audit(small("resnet34", text), Source("a", known("resnet34", 1).step.text))


# ---- what is no training step of the net


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**9), st.binary(max_size=6))
def test_a_cut_or_garbled_file_is_one_clear_error_or_differs(at: int, junk: bytes) -> None:
    text = known("tiny", 2).step.text
    place = at % len(text)
    for other in (text[:place], text[:place] + junk.decode("latin-1") + text[place:]):
        try:
            said = summary(audited(other))
        except ObligationsError as error:
            said = error.render()
        assert said.startswith(("Tiny: ", "step.mlir:", "error: ")), said


def test_files_of_something_else_are_refused() -> None:
    tiny, other = known("tiny", 2).step.text, known("resnet34", 1).step.text
    with pytest.raises(InputError, match="parameter names: this is a step of another net"):
        audited(known("mobilenetv2", 1).step.text, "resnet34")
    with pytest.raises(InputError, match=r"%x is tensor<3x9216xf32>, the input of Tiny is N × 3"):
        audited(other)
    with pytest.raises(InputError, match="has no argument %x"):
        audited(tiny.replace("%x:", "%y:").replace("%x ", "%y "))
    k = known("tiny", 2)
    assert k.found.loss is not None
    logits = k.found.loss.logits
    last = k.operations[logits].line
    head = k.rows[1].rsplit("->", 1)[0] + "-> tensor<3x3xf32> {"
    rows = [k.rows[0], head, *k.rows[2:last], f"return %{logits} : tensor<3x3xf32>", "}}"]
    with pytest.raises(InputError, match="is no training step: no loss, and 1 result"):
        audited("\n".join(rows))


def test_a_refusal_points_at_the_function_or_the_argument() -> None:
    """The long line of a function is shown around what the message speaks of."""
    for text, name, under in (
        (known("resnet34", 1).step.text, "tiny", "%x"),
        (known("mobilenetv2", 1).step.text, "resnet34", "@step"),
        (known("tiny", 2).step.text.replace("%x:", "%y:").replace("%x ", "%y "), "tiny", "@step"),
    ):
        with pytest.raises(InputError) as caught:
            audited(text, name)
        *_, line, carets = [r for r in caught.value.render().split("\n") if r.startswith("  ")][:2]
        start = carets.index("^")
        assert line[start : start + carets.count("^")] == under


def test_which_files_of_a_folder_are_a_nets() -> None:
    net = small("resnet34")
    good = ("resnet34_mom_train_step.mlir", "a/resnet34in_momdp64_train_step.mlir")
    bad = ("resnet34_fwd.mlir", "resnet50_mom_train_step.mlir", "xresnet34_train_step.mlir")
    assert [fits(net, n) for n in (*good, *bad)] == [True, True, False, False, False]


# ---- the command


def command(*arguments: str) -> int:
    from obligations.cli import run

    return run(["audit", *arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    k = known("tiny", 2)
    broken = next(read_moved(k))
    (tmp_path / "tiny_good_train_step.mlir").write_text(k.step.text, "utf-8")
    (tmp_path / "tiny_moved_train_step.mlir").write_text(broken.text, "utf-8")
    (tmp_path / "other_train_step.mlir").write_text("", "utf-8")
    return tmp_path


TINY = str(Path(__file__).resolve().parents[1] / "nets" / "tiny.net")


def test_the_command_prints_a_line_per_convention(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = str(folder / "tiny_good_train_step.mlir")
    assert command(TINY, good, "--no-numbers") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split() == ["convention", "description", "artifact", "found"]
    (line,) = (x for x in out if x.startswith("cotangents "))
    assert re.split(r"  +", line)[1:] == [
        "which each gradient reads",
        "holds at 23 of 23 tensors",
    ]
    assert re.fullmatch(r"Tiny: 26 of 26 conventions hold; \d+\.\d s", out[-1])


def test_the_command_shows_the_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = str(folder / "tiny_moved_train_step.mlir")
    broken = next(read_moved(known("tiny", 2)))
    pages = folder / "page.html", folder / "audit.json"
    assert command(TINY, bad, "--html", str(pages[0]), "--json", str(pages[1])) == 1
    out = capsys.readouterr().out
    assert f"{bad}:{broken.line}:5: cotangents: " in out
    assert broken.text.split("\n")[broken.line - 1].strip()[:60] in out
    html = pages[0].read_text("utf-8")
    assert f"tiny_moved_train_step.mlir:{broken.line}:5" in html
    assert "differs at 1 of 23 tensors" in html
    assert html.count("<svg") >= 5
    (data,) = json.loads(pages[1].read_text("utf-8"))
    assert data["ok"] is False
    (row,) = (r for r in data["rows"] if r["convention"] == "cotangents")
    assert (row["at"], row["of"], row["differences"][0]["line"]) == (22, 23, broken.line)


def test_numbers_that_were_asked_for_and_cannot_be_told(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    good = str(folder / "tiny_good_train_step.mlir")
    assert command(TINY, good, "--numbers") == 0
    monkeypatch.setattr("obligations.audit.numbers.MOST", 10.0)
    capsys.readouterr()
    assert command(TINY, good, "--numbers") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {good}: the numbers are not evaluated: ")
    assert "multiplications, at most 1e+01" in error
    # Not asked for, they are only noted.
    monkeypatch.setattr("obligations.audit.numbers.WORK", 10.0)
    assert command(TINY, good) == 0


def test_a_folder_of_artifacts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(TINY, "--artifacts", str(folder), "--no-numbers") == 1
    out = capsys.readouterr().out
    assert "other_train_step" not in out
    assert out.splitlines()[-1] == "Tiny: 1 of 2 training steps agree"
    (folder / "tiny_cut_train_step.mlir").write_text("module @m {", "utf-8")
    assert command(TINY, "--artifacts", str(folder), "--no-numbers") == 2
    seen = capsys.readouterr()
    assert "tiny_cut_train_step.mlir:1:" in seen.err
    assert "1 of 3 training steps agree, 1 cannot be read" in seen.out


def test_what_the_command_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bytes.mlir").write_bytes(b"\xff\xfe")
    for arguments, message in (
        ((TINY,), "name a FILE.mlir"),
        ((TINY, str(folder / "tiny_god_train_step.mlir")), "did you mean 'tiny_good_train_step"),
        ((TINY, str(folder)), "cannot be read"),
        ((TINY, str(folder / "bytes.mlir")), "not UTF-8"),
        (("resnet34", "--artifacts", str(folder)), "has no training step of ResNet34"),
        (("resnet34", str(folder / "other_train_step.mlir")), "other_train_step.mlir:1:1"),
    ):
        assert command(*arguments) == 2
        error = capsys.readouterr().err
        assert message in error
        assert "Traceback" not in error
