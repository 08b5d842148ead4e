"""Each fault of a render, made after it is resolved, is caught twice.

By the comparison of the two DAGs, and with the comparison off by the numbers alone. An exchange
that changes no value is shown to change none, and is reported by the comparison.
"""

from __future__ import annotations

import broken
import pytest

from obligations.description.reader import load
from obligations.mutation.mutants import Outcome
from obligations.statements.dag import INCOMING
from obligations.statements.section import sections

RENDER = {
    "resnet34": {
        "read moved": 102,
        "fan-in operand dropped": 4,
        "fan-in operand doubled": 4,
        "fan-in operand exchanged": 14,
        "skip added": 1,
        "saved activation exchanged": 72,
        "pool's saved value exchanged": 2,
        "weight exchanged": 30,
        "γ taken from a neighbour": 8,
        "mask of the other kind": 5,
        "step of the other padding": 2,
        "gradient nodes of the other padding": 2,
        "incoming cotangent exchanged": 47,
        "step lost": 14,
    },
    "mobilenetv2": {
        "read moved": 72,
        "fan-in operand dropped": 2,
        "fan-in operand doubled": 2,
        "fan-in operand exchanged": 1,
        "skip added": 1,
        "saved activation exchanged": 43,
        "weight exchanged": 28,
        "γ taken from a neighbour": 4,
        "mask of the other kind": 7,
        "gradient nodes of the other padding": 1,
        "incoming cotangent exchanged": 31,
        "step lost": 18,
    },
}
"""How many faults of each kind can be written down, and so must be caught."""

EQUIVALENT = {"saved activation exchanged"}


def caught_twice(o: Outcome) -> None:
    """By the comparison and by numbers; or, where no value changes, by the comparison alone."""
    assert o.compared, o.mutant.text
    if o.status == "equivalent":
        assert o.mutant.fault in EQUIVALENT, o.mutant.text
        assert not o.numbers
        assert o.deviation == 0.0
    else:
        assert o.status == "caught", o.mutant.text
        assert o.numbers, o.mutant.text


@pytest.mark.slow
@pytest.mark.parametrize("net", broken.NETS)
def test_every_fault_of_a_render_is_caught_twice(net: str) -> None:
    for fault, count in RENDER[net].items():
        found = [o for o in broken.of(net, fault) if o.status != "refused"]
        assert len(found) == count, fault
        for o in found:
            caught_twice(o)


@pytest.mark.parametrize("net", broken.NETS)
def test_a_fault_of_every_kind_is_caught_twice(net: str) -> None:
    for fault in RENDER[net]:
        numbers = (i for i, m in enumerate(broken.made(net)) if m.fault == fault)
        caught_twice(next(o for i in numbers if (o := broken.became(net, i)).status != "refused"))


@pytest.mark.parametrize("net", broken.NETS)
def test_every_read_is_moved_to_every_other_cotangent_of_its_shape(net: str) -> None:
    """Counted from the chains, with none of the code that makes the faults."""
    for block, section in sections(load(net, {})).items():
        fwd = section.forwards[section.first.name]
        emitted = section.emitted[section.first.name]
        places = {INCOMING: fwd.output, **{n: x.at for n, x in emitted.nodes.items()}}
        shapes = {
            n: fwd.block.input_shape if at == fwd.block.input else fwd.sites[at].shape
            for n, at in places.items()
        }
        others = {
            p: sum(shapes[n] == shapes[r.cotangent] for n in places) - 1
            for p, r in emitted.reads.items()
        }
        faults = [m for m in broken.made(net) if m.fault == "read moved"]
        made = [m.text for m in faults if m.block == block]
        for parameter, count in others.items():
            assert sum(t.startswith(f"{parameter} read ") for t in made) == count
        # A γ and its β are one clause: each alone cannot be written, both together can.
        pairs = {
            tuple(p.render for p in s.parameters if p.trained)
            for s in fwd.sites.values()
            if s.operation.word == "bn"
        }
        for pair in pairs:
            both = [t for t in made if t.startswith(f"{' and '.join(pair)} read ")]
            assert len(both) == others[pair[0]]


@pytest.mark.parametrize(
    ("net", "text", "compared", "numbers"),
    [
        (
            "resnet34",
            "W1 read %dr1 instead of %dn1",
            "W1 reads %dr1 (the cotangent at n1); the forward makes it %dn1 (at c1)",
            "r34IdTiedB, cotangent",
        ),
        # A bias before a BatchNorm has a zero gradient at either.
        (
            "resnet34",
            "b1 read %dn2 instead of %dn1",
            "b1 reads %dn2 (the cotangent at c2); the forward makes it %dn1 (at c1)",
            "r34IdTiedB, cotangent",
        ),
        (
            "resnet34",
            "%dmp saves stn instead of str",
            "%dmp saves stn; the forward makes it str",
            "r34StemCotP, cotangent",
        ),
        (
            "resnet34",
            "%dx is %dc1: %da is dropped",
            "the cotangent at xin is %dc1; the forward adds %dc1 and %da",
            "r34IdCotIn, cotangent",
        ),
        (
            "resnet34",
            "the gradient nodes of stem are XLA",
            "the render has XLA gradient nodes at strided layers; sW's layer is padded symmetric",
            "r34StemTiedB, intent",
        ),
        # Nothing in the file is spelled from this chain: its definition is the certificate's.
        (
            "resnet34",
            "%dgp reads %dy instead of %dgi",
            None,
            None,
        ),
        (
            "mobilenetv2",
            "%dx is %dxb: %dy is dropped",
            "the cotangent at xin is %dxb; the forward adds %dxb and %dy",
            "mnv2ResidCotIn, cotangent",
        ),
        (
            "mobilenetv2",
            "%dem is selectPosB instead of selectMidB",
            "%dem is selectPosB; the forward has relu6 at er, whose backward is selectMidB",
            "mnv2CotEn, cotangent",
        ),
    ],
)
def test_what_is_said_of_a_fault(
    net: str, text: str, compared: str | None, numbers: str | None
) -> None:
    found = broken.described(net, text)
    if compared is None or numbers is None:
        # Of another shape: not a fault of this kind.
        assert found == []
        return
    first = found[0]
    assert compared in (first.compared or ())
    assert first.numbers.startswith(numbers)


@pytest.mark.parametrize(
    ("net", "text", "reason"),
    [
        (
            "resnet34",
            "%dr1 saves r1 instead of n1",
            "relu's output exceeds 0 exactly where its input does",
        ),
        (
            "mobilenetv2",
            "%ddm saves dr instead of dn",
            "relu6's output lies in (0, 6) exactly where its input does",
        ),
    ],
)
def test_a_mask_at_its_activations_output_changes_nothing(net: str, text: str, reason: str) -> None:
    found = broken.described(net, text)
    assert found
    for o in found:
        assert o.status == "equivalent"
        assert o.reason == reason
        assert o.compared
        assert not o.numbers


def test_the_chain_behind_a_certificate_is_held_against_it() -> None:
    """ResNet-34's head is printed as its certificate's backward; its render is checked too."""
    found = broken.of("resnet34", "step of another operation", "head")
    assert found
    assert all(o.status == "refused" for o in found)
    lost = broken.of("resnet34", "step lost", "head")
    assert [o.status for o in lost] == ["refused", "refused"]
