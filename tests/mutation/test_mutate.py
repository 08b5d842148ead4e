"""What faults a net can have, what catches each, and that the catching can fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import broken
import numpy as np
import pytest

from obligations import cli
from obligations.confirm import block as check
from obligations.confirm.block import BlockCheck
from obligations.description.reader import load, read_net
from obligations.errors import Source
from obligations.lean.parse import parse_term
from obligations.lean.printer import term
from obligations.mutation import mutants as mutate
from obligations.mutation.faults import Mutant, chain_mutants, exchanges
from obligations.mutation.mutants import Bench, Outcome, Report, run
from obligations.ops import Parameter, definitions
from obligations.ops.activation import relu_mask
from obligations.shadow.evaluate import Evaluator
from obligations.statements.deriver import Deriver, step_definition
from obligations.statements.environment import typed_environment
from obligations.statements.section import Section
from obligations.statements.thread import Threading


@pytest.mark.slow
@pytest.mark.parametrize("net", broken.NETS)
def test_every_fault_is_refused_caught_or_explained(net: str) -> None:
    report = broken.report(net)
    assert report.unexplained() == ()
    assert report.uncompared() == ()
    assert report.unseen() == ()
    assert report.ok
    for o in report.outcomes:
        if o.status == "equivalent":
            assert o.reason
            assert o.deviation is not None
            assert o.deviation <= 1e-12, o.mutant.text
        if o.status == "caught" and isinstance(o.mutant.change, Section | Threading):
            assert o.compared, o.mutant.text


def test_a_moved_read_makes_no_definition_that_speaks_of_itself() -> None:
    """With a fan-in inside the block, a definition takes the name of one it reads."""
    text = (Path(__file__).parents[1] / "nets" / "tiny.net").read_text("utf-8")
    for old, new in (
        ("  out = relu a\n", "  t = relu a\n  out = t + n1\n"),
        ("%dr1 = selectPosB(n1)", "%dr1 = selectPosB(n1) %ds = addVB(%dr1, %dy)"),
        ("g1,bt1 ← %dr1", "g1,bt1 ← %ds"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    bench = Bench(read_net(Source("fork.net", text)))
    moved = [m for m in bench.mutants() if m.block == "Id" and "read %dr1 instead" in m.text]
    assert moved
    for mutant in moved:
        assert bench.outcome(mutant).status in ("refused", "caught"), mutant.text


@pytest.mark.slow
@pytest.mark.parametrize("net", broken.NETS)
def test_the_numbers_see_most_at_the_first_sample(net: str) -> None:
    """What takes another seed is an ε inside a mask, which moves few values past its kink."""
    caught = [o for o in broken.report(net).outcomes if o.status == "caught"]
    later = [o for o in caught if "(seed " in o.numbers]
    assert len(later) <= len(caught) // 50
    assert all("ε of" in o.mutant.text for o in later)


@pytest.mark.parametrize(
    ("net", "text", "said"),
    [
        (
            "resnet34",
            "the bundle of a2 takes the input after block 3",
            "the bundle of a2 takes its input after block 3; the forward makes it 2",
        ),
        (
            "resnet34",
            "cotPool receives dyA1 instead of dyA0",
            "cotPool receives dyA1; the forward makes it dyA0",
        ),
        (
            "resnet34",
            "the layers c1 and c3 are exchanged",
            "dyC2 takes the weights of c1; the forward makes it c3",
        ),
        (
            "mobilenetv2",
            "dy9 is the input cotangent of ExpOnly instead of Resid",
            "dy9 is the input cotangent of ExpOnly; the forward makes it Resid",
        ),
    ],
)
def test_the_threading_of_the_whole_net(net: str, text: str, said: str) -> None:
    o = broken.outcome(net, text)
    assert o.status == "caught"
    assert o.compared is not None
    assert said in o.compared
    assert "intent" in o.numbers


def test_layers_of_different_shapes_do_not_fit() -> None:
    o = broken.outcome("resnet34", "the layers a0 and b0 are exchanged")
    assert o.status == "refused"
    assert "has type" in o.refused


@pytest.mark.parametrize(
    ("text", "said", "reason"),
    [
        (
            "r34IdTiedB, W1: b of GradNodeB.ConvWTiedBAt is p.b₂ instead of p.b₁",
            "W₁: b is b₂; the layer's is b₁",
            "an affine layer's derivatives in its input and its weight have no bias in them",
        ),
        (
            "r34IdTiedB, b2: x of GradNodeB.ConvBTiedB is cotA instead of r1",
            "b₂: x is cotA; the layer's is",
            "a layer's derivative in its bias has neither weight nor input in it",
        ),
        (
            "r34IdTiedB, g1 and bt1: epsStr of GradNodeB.BnPairTiedB is xN instead of epsStr",
            "epsStr is xN; the layer's is epsStr",
            "a string is a name: nothing is computed from it",
        ),
        (
            "r34IdCotN1: b of cInB is p.b₁ instead of p.b₂",
            "cInB has b₁ beside W₂, whose own is b₂",
            "an affine layer's derivatives in its input and its weight have no bias in them",
        ),
        (
            "r34IdCotC2: b of cbReluB is p.b₂ instead of p.b₁",
            "cbReluB has b₂ beside W₁, whose own is b₁",
            "a bias before a BatchNorm is a constant per channel, which the BatchNorm removes",
        ),
        (
            "r34DownTiedB, g2 and bt2: β of GradNodeB.BnPairTiedB is p.βp instead of p.β₂",
            "β is βp; the layer's is β₂",
            "the two shifts are added into one sum, so that they have one gradient",
        ),
        (
            "r34DownTiedB, b1: the gradient node is XLA",
            "the gradient node is SHlo.convStridedXlaBiasGradB, which is not its layer's",
            "a bias gradient is its channel's sum, whichever rows and columns a layer keeps",
        ),
    ],
)
def test_slots_no_value_depends_on(text: str, said: str, reason: str) -> None:
    o = broken.outcome("resnet34", text)
    assert o.status == "equivalent"
    assert o.reason == reason
    assert not o.numbers
    assert said in o.slots


@pytest.mark.parametrize("net", broken.NETS)
def test_the_loss(net: str) -> None:
    faults = ("loss: sign", "loss: α lost", "loss: 1/B lost", "loss: wrong target")
    for fault in faults:
        found = broken.of(net, fault)
        assert found
        assert all(o.numbers for o in found)
    # The lemma's statement is also held against the library's lemma that proves it.
    lemma = [o for f in faults for o in broken.of(net, f) if o.compared is not None]
    assert lemma
    assert all(o.compared for o in lemma)


def full(mutant: Mutant) -> bool:
    """Whether a fault of a chain fails in any row, everything of its block evaluated anew."""
    change = mutant.change
    assert isinstance(change, Section)
    base = broken.bench("resnet34")
    deriver = Deriver(change, proofs=False)
    obligations = [*deriver.cotangents(), *deriver.bundle()]
    env = typed_environment(base.derived)
    steps = [step_definition(name, "") for name in definitions()]
    for o in (*steps, *obligations):
        d = o.declaration
        env.declare(d.name, d.binders, d.type, d.value)
    tallies, _ = BlockCheck(base.derived, env, change).check(obligations, (0,))
    return any(t.over() for t in tallies.values())


@pytest.mark.slow
def test_the_short_way_finds_what_the_whole_check_finds() -> None:
    bench = broken.bench("resnet34")
    made = [m for b in bench.blocks.values() for m in chain_mutants(b.section)]
    outcomes = [o for m in made[::29] if (o := bench.outcome(m)).status != "refused"]
    assert len(outcomes) >= 10
    for o in outcomes:
        assert full(o.mutant) == (o.status == "caught"), o.mutant.text


# -- what cannot fail is no check --------------------------------------------------------------


def test_a_net_that_does_not_hold_is_not_broken_further(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Evaluator.implementation

    def halved(self: Evaluator, name: str) -> Any:
        found = wrong(self, name)
        if name == "reluMaskB" and found is not None:
            return lambda n, pre, dy: found(n, pre, dy) / 2
        return found

    monkeypatch.setattr(Evaluator, "implementation", halved)
    with pytest.raises(mutate.ObligationsError, match="r34IdCotA fails before anything is changed"):
        run(load("resnet34", {}), only=lambda fault: fault == "mask of the other kind")


def test_a_mask_the_numbers_cannot_tell_is_unexplained(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Evaluator.implementation

    def blind(self: Evaluator, name: str) -> Any:
        if name == "relu6MaskB":
            return lambda n, pre, dy: relu_mask(pre, dy)
        return known(self, name)

    monkeypatch.setattr(Evaluator, "implementation", blind)
    monkeypatch.setattr(mutate, "FURTHER_FOR_POWER", (1,))
    report = run(load("resnet34", {}), only=lambda fault: fault == "mask of the other kind")
    assert len(report.unexplained()) == len(report.outcomes) == 5
    assert not report.ok


def test_samples_without_values_past_six_do_not_tell_the_masks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sampler's demand that each mask meets all three regions is what tells them apart."""
    from obligations.shadow import sampling as sample

    known = sample.tensor

    def small(parameter: Parameter, shape: tuple[int, ...], rng: np.random.Generator) -> Any:
        value = known(parameter, shape, rng)
        return value / 8 if parameter.symbol in ("γ", "β") else value

    monkeypatch.setattr(sample, "tensor", small)
    monkeypatch.setattr(sample, "REGIONS", (0.0, 0.01))
    monkeypatch.setattr(mutate, "FURTHER_FOR_POWER", ())
    bench = Bench(load("resnet34", {}))
    found = [
        bench.outcome(m)
        for m in chain_mutants(bench.blocks["Id"].section)
        if m.fault == "mask of the other kind"
    ]
    assert [o.status for o in found] == ["unexplained", "unexplained"]


def test_a_comparison_that_sees_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutate, "compare", lambda *_: [])
    report = run(load("resnet34", {}), only=lambda fault: fault == "fan-in operand dropped")
    assert report.uncompared() == report.outcomes
    assert not report.ok


def test_a_slot_that_nobody_looks_at_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "clause_difference", lambda *_: None)
    monkeypatch.setattr(check, "misplaced", lambda *_: iter(()))
    monkeypatch.setattr(mutate, "misplaced", lambda *_: iter(()))
    bench = Bench(load("resnet34", {}))
    text = "r34IdTiedB, W1: b of GradNodeB.ConvWTiedBAt is p.b₂ instead of p.b₁"
    (mutant,) = (m for m in bench.mutants() if m.text == text)
    report = Report("", (bench.outcome(mutant),), 0.0)
    assert report.unseen() == report.outcomes
    assert not report.ok


def test_two_reads_exchanged_at_once_are_caught_too() -> None:
    """A fault no list has: the tool knows nothing of the faults it catches."""
    bench = broken.bench("resnet34")
    section = bench.blocks["Id"].section
    (kind,) = section.emitted
    emitted = section.emitted[kind]
    a, b = emitted.reads["W1"], emitted.reads["W2"]
    swapped = {
        **emitted.reads,
        "W1": mutate.replace(a, cotangent=b.cotangent),
        "W2": mutate.replace(b, cotangent=a.cotangent),
    }
    changed = mutate.replace(section, emitted={kind: mutate.replace(emitted, reads=swapped)})
    o = bench.outcome(Mutant("two reads exchanged", "Id", "", changed))
    assert o.status == "caught"
    assert len(o.compared or ()) == 2


# -- pieces ------------------------------------------------------------------------------------


def test_exchanges_are_one_place_at_a_time() -> None:
    bench = broken.bench("resnet34")
    written = "cInB N p.W₁ p.b₁ (fun p => f p.b₁ (p.b₁))"
    found = exchanges(parse_term(written), lambda n: ["p.b₂"] if n == "p.b₁" else [], bench.env)
    assert [(term(new), head, slot) for new, head, slot, _, _ in found] == [
        ("cInB N p.W₁ p.b₂ (fun p => f p.b₁ p.b₁)", "cInB", "b"),
        ("cInB N p.W₁ p.b₁ (fun p => f p.b₂ p.b₁)", "f", ""),
        ("cInB N p.W₁ p.b₁ (fun p => f p.b₁ p.b₂)", "f", ""),
    ]


def test_faults_change_one_thing_only() -> None:
    bench = broken.bench("mobilenetv2")
    for block in bench.blocks.values():
        before = block.section
        for mutant in chain_mutants(before):
            if not isinstance(mutant.change, Section):
                continue
            after = mutant.change
            assert after.forwards is before.forwards
            for kind, emitted in after.emitted.items():
                old = before.emitted[kind]
                kept = list(old.nodes.values())
                nodes = [node for node in emitted.nodes.values() if node not in kept]
                reads = [p for p, r in emitted.reads.items() if r != old.reads[p]]
                if mutant.fault in ("step lost", "fan-in operand dropped"):
                    assert len(old.nodes) - len(emitted.nodes) in (0, 1)
                elif mutant.fault == "fan-in operand doubled":
                    assert len(nodes) in (0, 2)
                elif mutant.fault == "read moved":
                    assert not nodes
                    assert len(reads) <= 2
                else:
                    assert len(nodes) <= 1
                    assert not reads


# -- the command -------------------------------------------------------------------------------


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "faults.json"
    arguments = ["mutate", "resnet34", "--fault", "fan-in operand d", "--list"]
    assert cli.run([*arguments, "--json", str(path)]) == 0
    shown = capsys.readouterr().out
    assert (
        "fan-in operand dropped: Id: %dx is %dc1: %da is dropped — numbers: r34IdCotIn, cotangent"
        in shown
    )
    assert "reported: the cotangent at xin is %dc1; the forward adds %dc1 and %da" in shown
    assert "ResNet34: 8 faults, 0 refused as input, 8 shown by numbers alone" in shown
    (data,) = json.loads(path.read_text(encoding="utf-8"))
    assert data["ok"] is True
    assert data["table"]["fan-in operand dropped"]["numbers"] == 4
    assert len(data["faults"]) == 8
    assert all(f["status"] == "caught" and f["compared"] for f in data["faults"])


def test_the_command_says_what_it_cannot_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["mutate", "resnet34", "--fault", "no such fault"]) == 2
    assert "no kind of fault has no such fault in its name" in capsys.readouterr().err
    assert cli.run(["mutate", "resnet35"]) == 2
    assert cli.run(["mutate"]) == 2


def test_an_unexplained_fault_is_shown_and_the_command_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def blind(net: object, **_: object) -> Report:
        mutant = Mutant("a kind of fault", "Id", "something is wrong", None)
        return Report("Net", (Outcome(mutant, compared=("seen",), deviation=0.5),), 0.0)

    monkeypatch.setattr(mutate, "run", blind)
    assert cli.run(["mutate", "resnet34"]) == 1
    shown = capsys.readouterr().out
    assert "no number shows it, and no reason is known:" in shown
    assert "a kind of fault: Id: something is wrong — unexplained; reported: seen" in shown


@pytest.mark.slow
def test_the_readme_has_these_counts() -> None:
    readme = (Path(__file__).resolve().parents[2] / "README.md").read_text("utf-8")
    assert broken.readme_table() in readme
