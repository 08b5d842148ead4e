"""Entries that the table lacks: what each has about artifacts is all that an audit needs."""

import math
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from described import HERE, NEAR, failing, plain, told
from extended_ops import LAYERNORM, SIGMOID, SWISH, pointwise
from seeds import seeds
from step_mutants import mutant
from step_renderer import Net as Plain, Step, add, conv, head, relu, render

from obligations.audit.steps import Audit, audit
from obligations.description import Net
from obligations.description.reader import read_net
from obligations.errors import Source
from obligations.ops import Formula, Optimizer, extended as table_with
from obligations.ops.artifact import DY, X, function, logistic, symbol
from obligations.ops.base import Array, Family
from obligations.ops.batchnorm import normalised
from obligations.ops.core import align
from obligations.ops.optimizer import G, P, root
from obligations.stablehlo import Recognised, evaluate, read, recognise


def found_by(family: Family, formula: Formula | None) -> Family:
    """A family's operation with what is known of it in artifacts."""
    (operation,) = family.operations
    return replace(family, operations=(replace(operation, artifact=formula),))


S = logistic(X)
SWISH_FORMULA = Formula(X * S, DY * (S + X * S * (1 - S)))
SIGMOID_FORMULA = Formula(S, DY * S * (1 - S))
ROOT, CUBE = math.sqrt(2 / math.pi), 0.044715
T = function("tanh", ROOT * (X + CUBE * X * X * X))
GELU_FORMULA = Formula(
    0.5 * X * (1 + T),
    DY * (0.5 * (1 + T) + 0.5 * ROOT * X * (1 - T * T) * (1 + 3 * CUBE * X * X)),
)


def gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(ROOT * (x + CUBE * x**3))))


def gelu_back(x: Array, dy: Array) -> Array:
    x, dy = align(x, dy)
    t = np.tanh(ROOT * (x + CUBE * x**3))
    return np.asarray(dy * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT * (1 + 3 * CUBE * x * x)))


GELU = pointwise("gelu", gelu, gelu_back)
LN_FORMULA = normalised(("c",), ("N", "h", "w"), "layer")

_LR, _B, _EPS, _DECAY = (symbol(s) for s in ("lr", "β", "ε", "λ"))
_M, _V = symbol("m"), symbol("v")
_FIRST, _SECOND = _B * _M + (1 - _B) * G, _B * _V + (1 - _B) * G * G
ADAMW = Optimizer("adamw", P - _LR * (_FIRST / (root(_SECOND) + _EPS) + _DECAY * P), ("m", "v"))


@contextmanager
def extended(*optimizers: Optimizer, formulas: bool = True) -> Iterator[None]:
    """The table with a swish, a sigmoid, a GELU and a layer normalisation."""
    activations = (SWISH, SWISH_FORMULA), (SIGMOID, SIGMOID_FORMULA), (GELU, GELU_FORMULA)
    known = *activations, (LAYERNORM, LN_FORMULA)
    families = (found_by(f, formula if formulas else None) for f, formula in known)
    with table_with(*families, *optimizers):
        yield


def described(activation: str = "swish") -> Net:
    """The small net with that activation, and layer normalisations in its identity block."""
    text = (HERE / "nets" / "tiny.net").read_text("utf-8")
    text = re.sub(r"relu6 (?=[ed]n)", f"{activation} ", text)
    text = text.replace("selectMidB", f"{activation}BackB").replace(
        "and relu6", f"and {activation}"
    )
    first, block, rest = re.split(r"(block Id .*?(?=\nblock ))", text, maxsplit=1, flags=re.S)
    block = block.replace("= bn (", "= ln (").replace("bnBatchBack", "lnBackB")
    biases = '  biases      off in the artifact\n    recorded "here"\n  loss '
    return read_net(Source("tiny.net", first.replace("  loss ", biases) + block + rest), {})


def audited(text: str, net: Net | None = None, numbers: bool = False) -> Audit:
    return audit(net or described(), Source("step.mlir", text), numbers=numbers)


@cache
def right(seed: int, optimizer: str = "momentum") -> Step:
    return render(plain(described()), seed, optimizer=optimizer)


# ---- right ones


@pytest.mark.parametrize("activation", ["swish", "sigmoid", "gelu"])
@pytest.mark.parametrize("seed", seeds(4))
def test_every_idiom_is_held_by_name(activation: str, seed: int) -> None:
    with extended(ADAMW):
        net = described(activation)
        step = render(plain(net), seed, optimizer=("adamw", "adam")[seed % 2])
        found = audited(step.text, net, numbers=True)
    assert found.ok, told(found)
    said = {row.convention: row for row in found.rows}
    assert said["activation"].stated == f"relu and {activation}"
    assert said["activation"].said == "holds at 6 of 6 sites"
    assert said[f"{activation} backward"].said == "holds at 2 of 2 steps"
    assert said["masks"].said == "holds at 4 of 4 steps"
    assert said["layer normalisation"].said == "holds at 2 of 2 sites"
    assert said["layer normalisation divisor"].stated == "c"
    assert said["layer normalisation backward"].stated == "three terms, 1/c"
    assert said["layer normalisation backward"].said == "holds at 2 of 2 steps"
    assert said["BatchNorm backward"].said == "holds at 5 of 5 steps"
    assert said["gradient nodes"].said == "holds at 23 of 23 tensors"
    assert said["numbers"].said == "holds at 23 of 23 tensors"
    assert said["optimizer"].note.startswith(("adamw", "adam")[seed % 2] + " at 23 of 23;")


def smooth() -> Plain:
    """Two smooth activations in a row, one beside a sum, a layer normalisation of their sum."""
    layers = (
        conv("c", "x", "W", 4, 3),
        relu("s", "c", "swish"),
        relu("t", "s", "sigmoid"),
        conv("d", "t", "V", 4, 1),
        relu("u", "d", "sigmoid"),
        add("a", "u", "s"),
        replace(relu("n", "a", "ln"), params=("g", "b")),
        relu("r", "n", "relu6"),
        *head("r"),
    )
    return Plain(2, 2, 6, layers)


def recognised(step: Step) -> Recognised:
    main = read(Source("step.mlir", step.text)).main
    return recognise(main)


@pytest.mark.parametrize("seed", seeds(6, quick=2))
def test_sites_steps_and_gradients_are_those_that_were_written(seed: int) -> None:
    net = smooth()
    step = render(net, seed)
    with extended():
        found = recognised(step)
    assert found.unmatched == ()
    at = {site.value: site for site in found.sites}
    for layer in net.layers:
        site = at[found.canonical[step.forward[layer.out]]]
        assert (site.kind, site.params) == (layer.kind, layer.params)
        if layer.kind != "add" and layer.inputs[0] != "x":
            (back,) = (s for s in found.steps if s.site == site.index)
            assert back.incoming == found.canonical[step.cotangents[layer.out]]
        for p in layer.params:
            assert found.gradients[p].value == found.canonical[step.gradients[p]]
            assert found.gradients[p].cotangent == found.canonical[step.cotangents[layer.out]]


# ---- without what an entry says


def test_without_an_entry_an_operation_is_unmatched() -> None:
    with extended(formulas=False):
        step = right(0)
    found = recognised(step)
    kinds = {u.kind for u in found.unmatched}
    assert kinds & {"forward logistic", "forward exponential"}
    assert not any(s.kind in ("swish", "ln") for s in found.sites)
    with extended(formulas=False):
        told_of = audited(step.text)
    assert {"forward", "nothing else"} <= failing(told_of)
    messages = [m.message() for _, m in told_of.mismatches]
    assert any("m0.er: no swish, expected swish of m0.en" in m for m in messages)
    assert any(re.search("forward (logistic|exponential) is none of", m) for m in messages)


# ---- wrong ones

FAR = 48
"""Lines between a lost cotangent and what is known next, before or after."""


def edited(step: Step, line: int, old: str, new: str) -> str:
    """The text with a name in the operation of a line exchanged."""
    rows = step.text.split("\n")
    head_, equals, tail = rows[line - 1].partition("=")
    rows[line - 1] = head_ + equals + re.sub(rf"%{old}\b", f"%{new}", tail, count=1)
    assert rows[line - 1] != step.text.split("\n")[line - 1]
    return "\n".join(rows)


def others(step: Step, found: Recognised, line: int, name: str) -> list[str]:
    """The forward's activations of the type of a name, before a line."""
    main = read(Source("a", step.text)).main
    kinds = {
        n: str(t)
        for op in main.operations
        for n, t in zip(op.results, op.result_types, strict=True)
    }
    sites = {s.value for s in found.sites}
    canonical = found.canonical
    return [
        n
        for op in main.operations
        for n in op.results
        if op.line < line
        and kinds[n] == kinds.get(name)
        and canonical[n] in sites
        and canonical[n] != canonical[name]
    ]


@pytest.mark.parametrize("kind", ["swish", "ln"])
@pytest.mark.parametrize("seed", seeds(2))
def test_another_saved_value_is_told_at_its_line(kind: str, seed: int) -> None:
    """In a step back, each reading of the saved activation is made one of another."""
    # A difference from another's mean is no deviation: what is told is the step's first use of it.
    tried, reach = 0, FAR if kind == "ln" else NEAR
    with extended():
        step = right(seed)
        found = recognised(step)
        main = read(Source("a", step.text)).main
        for back in (s for s in found.steps if s.kind == kind):
            first = found.sites[back.site or 0].line
            for op in main.operations:
                if (
                    not max(step.backward[0], back.attributes["from_line"] - 30)
                    <= op.line
                    <= back.line
                ):
                    continue
                for name in dict.fromkeys(op.operands):
                    if found.canonical[name] != back.saved:
                        continue
                    for other in others(step, found, first, name)[:2]:
                        told_of = audited(edited(step, op.line, name, other))
                        assert failing(told_of), (op.line, other)
                        near = [m for _, m in told_of.mismatches if 0 <= m.line - op.line <= reach]
                        assert near, (op.line, told(told_of))
                        tried += 1
    assert tried or kind == "ln"  # a normalisation's step may read the forward's deviation


@pytest.mark.parametrize("seed", seeds(4))
def test_every_change_of_a_step_that_changes_its_results_is_told(seed: int) -> None:
    rng = np.random.default_rng(seed)
    with extended():
        step = right(seed)
        found = recognised(step)
        main = read(Source("a", step.text)).main
        given = {a.name: rng.normal(0, 1.5, a.type.shape) for a in main.arguments}
        before = evaluate(main, given).results
        changed = 0
        for back in (s for s in found.steps if s.kind in ("swish", "ln")):
            lines = back.attributes["from_line"], back.line
            for number in range(3):
                broken = mutant(step, random.Random(10 * seed + number), lines)
                after = evaluate(read(Source("a", broken.text)).main, given).results
                pairs = zip(before, after, strict=True)
                if all(np.allclose(a, b, rtol=1e-9, equal_nan=True) for a, b in pairs):
                    continue
                told_of = audited(broken.text)
                note = (broken.line, broken.what, told(told_of))
                assert any(abs(m.line - broken.line) <= FAR for _, m in told_of.mismatches), note
                changed += 1
    assert changed >= 6


def test_a_forward_that_is_another_is_told_at_its_line() -> None:
    with extended():
        net = described()
        right_one = plain(net)
        step = render(right_one, 1)
        # A product of one value with the logistic function of another is no swish.
        found = recognised(step)
        site = next(s for s in found.sites if s.kind == "swish")
        main = read(Source("a", step.text)).main
        last = next(op for op in main.operations if site.value in op.results)
        name = next(n for n in last.operands if found.canonical[n] == site.inputs[0])
        other = next(
            op.results[0]
            for op in main.operations
            if op.line < last.line
            and op.kind == "broadcast_in_dim"
            and op.result_types[0].shape == last.result_types[0].shape
        )
        told_of = audited(edited(step, last.line, name, other))
        assert "forward" in failing(told_of)
        assert any("m0.er: no swish" in m.message() for _, m in told_of.mismatches)
        assert any(abs(m.line - last.line) <= NEAR for _, m in told_of.mismatches)
        # Statistics over the batch where they should be those of each position.
        layers = (replace(x, kind="bn") if x.kind == "ln" else x for x in right_one.layers)
        told_of = audited(render(replace(right_one, layers=tuple(layers)), 1).text)
    messages = [m.message() for row, m in told_of.mismatches if row.convention.startswith("layer")]
    wanted = "i0.n1: batch statistics over [0, 2, 3], expected layer statistics over [1]"
    assert wanted in messages, told(told_of)
    assert any("i0.n1: the variance is divided by 512, expected 8" in m for m in messages)


def test_another_scale_or_epsilon_of_a_layer_normalisation_is_told() -> None:
    seen = set()
    with extended():
        step = right(2)
    rows = step.text.split("\n")
    low, high = step.backward
    with extended():
        for at in range(low, high):
            # The step of `n2` goes through the scale of `n1`.
            if re.search(r"%i0g2\b", rows[at]):
                text = "\n".join([*rows[:at], rows[at].replace("%i0g2", "%i0g1"), *rows[at + 1 :]])
                found = audited(text)
                assert "weights of steps" in failing(found), told(found)
                assert any(abs(m.line - at - 1) <= NEAR for _, m in found.mismatches)
                seen.add("scale")
        for at, row in enumerate(rows[:low]):
            if "dense<0.001" in row or "dense<1.000000000e-03" in row:
                text = "\n".join(
                    [*rows[:at], re.sub(r"<[^>]*>", "<0.002>", row, count=1), *rows[at + 1 :]]
                )
                found = audited(text)
                assert "ε" in failing(found), told(found)
                seen.add("epsilon")
    assert seen == {"scale", "epsilon"}


# ---- an optimizer


@pytest.mark.parametrize("seed", seeds(3))
def test_an_optimizer_is_one_entry(seed: int) -> None:
    with extended():
        step = right(seed, "adamw")
        assert "adam at 23 of 23" in str({r.convention: r.note for r in audited(step.text).rows})
    with extended(ADAMW):
        found = audited(step.text)
        assert found.ok
        row = next(r for r in found.rows if r.convention == "optimizer")
        assert row.said == "noted"
        assert row.note == "adamw at 23 of 23; its numbers and state are not checked"
        for optimizer in ("sgd", "momentum", "adam", "rmsprop"):
            notes = [r.note for r in audited(right(seed, optimizer).text).rows]
            assert f"{optimizer} at 23 of 23; its numbers and state are not checked" in notes


@pytest.mark.parametrize("seed", seeds(3))
def test_an_update_that_differs_from_the_others_is_told_at_its_line(seed: int) -> None:
    with extended():
        step = right(seed, "adamw")
    rows = step.text.split("\n")
    _, high = step.backward

    def own(row: str, name: str) -> bool:
        return re.search(rf"%{name}\b", row.partition("=")[2]) is not None

    # Where a parameter is decayed, and where its states are read.
    decay = next(i for i in range(high, len(rows)) if own(rows[i], "i0W1") and "multi" in rows[i])
    first = next(i for i in range(high, len(rows)) if own(rows[i], "i0W1_m"))
    changes = {
        decay: (rows[decay].replace("%i0W1,", "%i0W1_v,").replace(", %i0W1 ", ", %i0W1_v "), ""),
        first: (rows[first].replace("%i0W1_m", "%i0W1_v"), "adamw of other states"),
        first + 10**6: (rows[first].replace("%i0W1_m", "%i0W2_m"), "reads %i0W2_m as another does"),
    }
    with extended(ADAMW):
        for place, (row, message) in changes.items():
            at = place % 10**6
            assert row != rows[at]
            found = audited("\n".join([*rows[:at], row, *rows[at + 1 :]]))
            assert failing(found) == {"optimizer"}, told(found)
            mine = [m for _, m in found.mismatches if m.where == "i0W1"]
            assert [m for m in mine if 0 <= m.line - at - 1 <= NEAR], told(found)
            assert any(message in m.message() for m in mine), told(found)
    twice = pytest.raises(ValueError, match="the operation table has 'adam' twice")
    with twice, table_with(replace(ADAMW, word="adam")):
        raise AssertionError
