"""Recognition on steps of known truth: whatever the idiom, and whatever is broken."""

import os
import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from agreement import disagreements
from seeds import seeds, slow
from step_mutants import mutant
from step_nets import NETS
from step_renderer import Net, conv, head, inputs, parameters, relu, render, shapes

from obligations.errors import ObligationsError, Source
from obligations.stablehlo import Recognised, evaluate, read, recognise, values

OPTIMIZERS = ("sgd", "momentum", "adam", "rmsprop")


def recognised(text: str) -> Recognised:
    module = read(Source("step.mlir", text))
    return recognise(module.main, module.functions)


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("seed", seeds(8, quick=2))
def test_every_idiom_is_seen_through(name: str, seed: int) -> None:
    net = NETS[name]
    optimizer = OPTIMIZERS[seed % 4]
    replicas = 2 * (seed % 2)
    step = render(net, seed, optimizer=optimizer, replicas=replicas, narrow=seed % 3 == 2)
    found = recognised(step.text)
    assert disagreements(found) == []
    names = parameters(net)
    sizes = shapes(net)
    assert dict(found.parameters) == {p: sizes[p] for p in names}
    # The gradient nodes and cotangents are the ones that were written as such.
    assert {p: found.gradients[p].value for p in names} == {
        p: found.canonical[step.gradients[p]] for p in names
    }
    values_of = {layer.out: found.canonical[step.forward[layer.out]] for layer in net.layers}
    for layer in net.layers:
        (site,) = (s for s in found.sites if s.value == values_of[layer.out])
        assert site.kind == layer.kind
        assert site.params == layer.params
        wanted = tuple(found.canonical["x"] if i == "x" else values_of[i] for i in layer.inputs)
        assert site.inputs == wanted
        if layer.kind in ("conv", "depthwise"):
            a = site.attributes
            assert (a["stride"], a["pads"]) == ((layer.stride,) * 2, (layer.pads,) * 2)
            centre = (layer.kernel - 1) // 2
            assert a["phase"] == (centre - layer.pads[0],) * 2
            assert a["bias"] == (layer.bias if len(layer.params) < 2 else layer.params[1])
        for p in layer.params:
            gradient = found.gradients[p]
            assert gradient.cotangent == found.canonical[step.cotangents[layer.out]]
    assert len(found.sites) == len(net.layers)
    assert len(found.fan_ins) == sum(layer.kind == "add" for layer in net.layers)
    assert {u.optimizer for u in found.updates.values()} == {optimizer}
    assert {u.replicas for u in found.updates.values()} == {replicas or None}
    assert bool(found.converts) == (seed % 3 == 2)
    assert found.loss is not None
    assert (found.loss.batch, found.loss.kept, found.loss.target) == (net.batch, 0.9, "onehot")
    assert found.loss.uniform == pytest.approx(net.alpha / net.classes, rel=1e-9)


def test_fan_in_keeps_its_order() -> None:
    text = render(NETS["residual"], 5).text
    lines = text.split("\n")
    fan_in = recognised(text).fan_ins[0]
    row = lines[fan_in.line - 1]
    found = re.search(r"stablehlo\.add %(\w+), %(\w+)", row)
    assert found is not None
    assert recognised(text).canonical[found[1]] == fan_in.a
    lines[fan_in.line - 1] = row.replace(found[0], f"stablehlo.add %{found[2]}, %{found[1]}")
    swapped = recognised("\n".join(lines))
    assert (swapped.fan_ins[0].a, swapped.fan_ins[0].b) == (fan_in.b, fan_in.a)
    assert disagreements(swapped) == []


@pytest.mark.parametrize("name", ["residual", "inverted", slow("instance")])
@pytest.mark.parametrize("seed", [0, slow(3)])
def test_every_break_that_changes_a_result_is_named(name: str, seed: int) -> None:
    """A change is found, near its line, exactly when it can change what the step computes."""
    net = NETS[name]
    step = render(net, seed)
    arguments = inputs(net, step, seed)
    before = evaluate(read(Source("a", step.text)).main, arguments).results
    counts: Counter[str] = Counter()
    for number in range(10):
        broken = mutant(step, random.Random(100 * seed + number))
        module = read(Source("a", broken.text))
        after = evaluate(module.main, arguments).results
        pairs = zip(before, after, strict=True)
        same = all(np.allclose(a, b, rtol=1e-9, atol=1e-12) for a, b in pairs)
        named = disagreements(recognise(module.main, module.functions))
        note = f"line {broken.line}: {broken.what}: {named[:3]}"
        assert same or named, note
        if not same:
            counts["broken"] += 1
            counts["near"] += min(abs(line - broken.line) for line, _ in named) <= 45
    assert counts["broken"] >= 5
    assert counts["near"] == counts["broken"]


@pytest.mark.parametrize("seed", seeds(3))
def test_a_mask_on_another_saved_value_says_which(seed: int) -> None:
    """The mask reads the activation's output where it should read its input."""
    step = render(NETS["residual"], seed)
    found = recognised(step.text)
    main = read(Source("a", step.text)).main
    types = {a.name: a.type for a in main.arguments}
    for op in main.operations:
        types |= dict(zip(op.results, op.result_types, strict=True))
    rows = step.text.split("\n")
    wrong = []
    for mask in (s for s in found.steps if s.kind == "mask" and s.site is not None):
        site = found.sites[mask.site or 0]
        for op in main.operations:
            at = [o for o in op.operands if found.canonical[o] == mask.saved]
            if op.kind != "compare" or not at:
                continue
            outputs = [n for n, v in found.canonical.items() if v == site.value]
            fitting = [n for n in outputs if types[n] == types[at[0]]]
            if fitting:
                changed = list(rows)
                changed[op.line - 1] = re.sub(
                    rf"%{at[0]}\b(?!.*=)", f"%{fitting[0]}", rows[op.line - 1]
                )
                broken = recognised("\n".join(changed))
                (new,) = (s for s in broken.steps if s.kind == "mask" and s.line == mask.line)
                assert (new.saved, new.site) == (site.value, mask.site)
                said = [what for line, what in disagreements(broken) if line == mask.line]
                assert any(what.startswith("mask step saved") for what in said)
                wrong.append(mask.line)
    assert wrong


def test_values_up_to_what_does_not_change_them() -> None:
    text = """
func.func @f(%x: tensor<2x3x4xf32>, %y: tensor<24xf32>, %p: tensor<i1>) -> tensor<24xf32> {
  %a = stablehlo.reshape %x : (tensor<2x3x4xf32>) -> tensor<24xf32>
  %b = stablehlo.add %a, %y : tensor<24xf32>
  %c = stablehlo.reshape %y : (tensor<24xf32>) -> tensor<2x3x4xf32>
  %d = stablehlo.add %c, %x : tensor<2x3x4xf32>
  %e = stablehlo.transpose %x, dims = [1, 0, 2] : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
  %f = stablehlo.transpose %e, dims = [1, 0, 2] : (tensor<3x2x4xf32>) -> tensor<2x3x4xf32>
  %g = stablehlo.broadcast_in_dim %x, dims = [1, 0, 2] : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
  %h = stablehlo.subtract %a, %y : tensor<24xf32>
  %i = stablehlo.subtract %y, %a : tensor<24xf32>
  %z = stablehlo.constant dense<0.0> : tensor<24xf32>
  %j = stablehlo.add %a, %z : tensor<24xf32>
  %k = stablehlo.convert %x : (tensor<2x3x4xf32>) -> tensor<2x3x4xbf16>
  %l = stablehlo.compare GT, %a, %y : (tensor<24xf32>, tensor<24xf32>) -> tensor<24xi1>
  %m = stablehlo.compare LT, %y, %a : (tensor<24xf32>, tensor<24xf32>) -> tensor<24xi1>
  %n = stablehlo.compare LT, %a, %y : (tensor<24xf32>, tensor<24xf32>) -> tensor<24xi1>
  return %b : tensor<24xf32>
}
"""
    table = values(read(Source("a", text)).main)
    same = table.ids
    assert same["a"] == same["x"] == same["f"] == same["j"] == same["k"]
    assert same["b"] == same["d"]
    assert same["l"] == same["m"]
    different = ["x", "e", "h", "i", "l", "n", "b"]
    assert len({same[n] for n in different}) == len(different)
    # A broadcast that permutes is no reshape.
    assert same["g"] != same["x"]
    assert [(c.source, c.target, c.line) for c in table.converts] == [("f32", "bf16", 14)]
    assert table.zero_adds == {same["x"]: 13}


def test_a_forward_pass_has_sites_only() -> None:
    text = render(NETS["inverted"], 4).text
    found = recognised(text)
    assert found.loss is not None
    logits = next(n for n, v in found.canonical.items() if v == found.loss.logits)
    rows = text.split("\n")
    head_row = rows[1].rsplit("->", 1)[0] + "-> tensor<2x3xf32> {"
    at = next(i for i, r in enumerate(rows) if r.startswith(f"    %{logits} ="))
    forward = "\n".join(
        [rows[0], head_row, *rows[2 : at + 1], f"    return %{logits} : tensor<2x3xf32>", "}}"]
    )
    alone = recognised(forward)
    assert [s.kind for s in alone.sites] == [s.kind for s in found.sites]
    assert (alone.loss, alone.steps, dict(alone.gradients)) == (None, (), {})
    assert list(alone.parameters) == list(found.parameters)


def test_calls_are_followed_and_bounded() -> None:
    net = Net(2, 1, 4, (conv("c", "x", "W", 2, 3), relu("r", "c"), *head("r")))
    text = render(net, 0).text
    main = text.replace("func.func @step", "func.func @main", 1)
    found = recognised(main)
    site = next(s for s in found.sites if s.kind == "relu")
    rows = main.split("\n")
    parts = re.fullmatch(
        r"\s*%(\w+) = .*?maximum.*? : (?:.* -> )?(tensor<\S+>)", rows[site.line - 1]
    )
    assert parts is not None
    shape = {o.results[0]: o for o in read(Source("a", main)).main.operations if o.results}
    pre = next(
        n
        for n, v in found.canonical.items()
        if v == site.inputs[0] and n in shape and str(shape[n].result_types[0]) == parts[2]
    )
    t = parts[2]
    rows[site.line - 1] = f"    %{parts[1]} = call @relu(%{pre}) : ({t}) -> {t}"
    relu_text = f"""
  func.func private @relu(%arg0: {t}) -> {t} {{
    %z = stablehlo.constant dense<0.0> : {t}
    %0 = stablehlo.maximum %arg0, %z : {t}
    return %0 : {t}
  }}
}}"""
    called = "\n".join(rows).rstrip().removesuffix("}") + relu_text
    again = recognised(called)
    assert [s.kind for s in again.sites] == [s.kind for s in found.sites]
    assert disagreements(again) == []
    rounds = f"func.func @f(%x: {t}) -> {t} {{ %y = call @f(%x) : ({t}) -> {t} return %y : {t} }}"
    with pytest.raises(ObligationsError, match="calls nest deeper than 32"):
        recognised(rounds)


REAL = {
    "resnet34_mom_train_step": (110, 36, 16, "momentum"),
    "resnet34_adam_train_step": (110, 36, 16, "adam"),
    "resnet34in_momdp64_train_step": (110, 36, 16, "momentum"),
    "mobilenetv2_adam_train_step": (158, 52, 10, "adam"),
    "mobilenetv2_rms_train_step": (158, 52, 10, "rmsprop"),
    "mobilenetv2in_rmsdp64_train_step": (158, 52, 10, "rmsprop"),
}


ARTIFACTS = Path(os.environ.get("OBLIGATIONS_ARTIFACTS", os.devnull))
"""A folder with the library's own artifacts; without it there is nothing to collect."""


FOUND = [name for name in REAL if (ARTIFACTS / f"{name}.mlir").exists()]

if FOUND:

    @pytest.mark.parametrize("name", FOUND)
    def test_committed_training_steps(name: str) -> None:
        found = recognised((ARTIFACTS / f"{name}.mlir").read_text("utf-8"))
        count, norms, fan_ins, optimizer = REAL[name]
        assert len(found.gradients) == len(found.parameters) == count
        assert found.census["site bn"] == found.census["step bn"] == norms
        assert len(found.fan_ins) == fan_ins
        assert {u.optimizer for u in found.updates.values()} == {optimizer}
        assert disagreements(found) == []
