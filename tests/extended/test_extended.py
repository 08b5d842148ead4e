"""Operations, a loss and a convention that the table lacks, added as entries and nothing else.

``mixer.net`` is made of them: no stem, a three-term sum, fan-ins of four, attention with its inputs
by name, a group with one step back, blocks on rows one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import extended_ops as entries
import networkx as nx
import numpy as np
import pytest
from squared_error import FAMILY as SQUARED_ERROR

from obligations import ops
from obligations.confirm import confirm
from obligations.confirm.roads import complex_step, formula, point
from obligations.description import Net, load, read_net
from obligations.errors import InputError, Source
from obligations.mutation.mutants import Bench
from obligations.ops.base import Convention
from obligations.shadow import relative_error
from obligations.statements import certify, derive, differences, sections
from obligations.writing import tie_file

MIXER = Path(__file__).with_name("mixer.net")
WORDS = ("swish", "sigmoid", "gate", "seBlock", "ln", "attention", "convn", "convo")


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    added = (
        entries.SWISH,
        entries.SIGMOID,
        entries.GATE,
        entries.SE,
        entries.LAYERNORM,
        entries.ATTENTION,
        entries.without_bias(),
        entries.bias_or_not(),
        SQUARED_ERROR,
        Convention("rounding", values=("to nearest", "up"), unknown="no rounding '{}'"),
    )
    with ops.extended(*added):
        yield


@pytest.fixture(scope="module")
def net(table: None) -> Net:
    return load(str(MIXER))


def changed(old: str, new: str) -> Net:
    text = MIXER.read_text("utf-8")
    assert text.count(old) == 1, old
    return read_net(Source("mixer.net", text.replace(old, new)))


def told(net: Net) -> list[str]:
    return [f"{d.span.line}: {d.message}" for d in differences(net, sections(net))]


# -- the entries -------------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_every_step_and_node_is_the_derivative(word: str) -> None:
    operation = ops.lookup(word)
    assert operation is not None
    for seed in range(3):
        at = point(operation, 3, seed)
        emitted, truth = formula(at), complex_step(at)
        tied = {s for c in operation.clauses for s in c.covers}
        assert set(emitted) == {*at.symbols, *tied}
        for symbol, value in emitted.items():
            assert relative_error(value.reshape(-1), truth[symbol].reshape(-1)) < 1e-13


def test_the_table_is_as_before_outside_the_context() -> None:
    with pytest.raises(ValueError, match="twice"), ops.extended(entries.SWISH):
        pass
    before = ops.words()
    with ops.extended(entries.pointwise("swash", lambda x: x, lambda x, dy: dy)):
        assert ops.words() == (*before, "swash")
    assert ops.words() == before


# -- the net -----------------------------------------------------------------------------------


def test_the_two_graphs_are_the_same(net: Net) -> None:
    for section in sections(net).values():
        for kind, fwd in section.forwards.items():
            have = section.emitted[kind].graph(fwd)
            assert nx.utils.graphs_equal(certify(fwd).graph, have)


def test_every_statement_holds(net: Net) -> None:
    assert told(net) == []
    derived = derive(net)
    ledger = confirm(derived, seeds=(0, 1))
    assert [(r.name, r.verdict, r.notes) for r in ledger.failing()] == []
    assert {o.kind for o in derived.obligations} >= {"cotangent", "bundle", "capstone", "loss"}
    tensors = 2 * 6 + 5 + 2 * 2 + 2
    assert f"{tensors} tensors" in next(r for r in ledger.further if "replicas" in r.name).notes[0]


def test_the_file_says_what_is_in_it(net: Net) -> None:
    text = " ".join(tie_file.text(derive(net), checked=True).split())
    assert f"{2 * 6 + 5 + 2 * 2 + 2} tensors are trained" in text
    assert "attnQInB N c h w" in text
    assert "seInB N c h w r p.Wz1 p.bz1 p.Wz2 p.bz2" in text
    assert "the sum times swish' at `n1`" in text


WRONG = {
    "read": (
        "W1 ← %dc   g1,bt1 ← %dn",
        "W1 ← %dn   g1,bt1 ← %dn",
        "W1 reads %dn (the cotangent at n1); the forward makes it %dc (at c1)",
    ),
    "mask": (
        "%dn = swishBackB(n1)   %dc = lnBackB",
        "%dn = sigmoidBackB(n1)   %dc = lnBackB",
        "%dn is sigmoidBackB; the forward has swish at s1, whose backward is swishBackB",
    ),
    "saved value": (
        "%dk = attnKBackB(q, k, v)",
        "%dk = attnKBackB(q, v, k)",
        "%dk saves v; the forward makes it k",
    ),
    "weight": (
        "%sq = convnBackBatched(Wq)  %sk = convnBackBatched(Wk)",
        "%sq = convnBackBatched(Wk)  %sk = convnBackBatched(Wk)",
        "the chain has no step for convn at q: convnBackBatched",
    ),
    "addend": (
        "%ds = addVB(%sq, %sk, %sv, %da)",
        "%ds = addVB(%sq, %sk, %sv)",
        "%ds adds %sq and %sk and %sv; what reaches s1 is %sq and %sk and %sv and %da",
    ),
    "the group's weight": (
        "seBackBatched(Wz1, bz1, Wz2, bz2, dr)",
        "seBackBatched(Wz1, bz2, Wz2, bz1, dr)",
        "%dxse names the weight bz2; the forward makes it bz1",
    ),
    "incoming, said": (
        "%dg = gateReduceB(dr) from %dy",
        "%dg = gateReduceB(dr) from %dxse",
        "%dg reads %dxse (the cotangent at dr); the forward makes it %dy (at se)",
    ),
    "read of a row": (
        "Wd,bd ← %dd",
        "Wd,bd ← %dy",
        "Wd reads %dy (the incoming cotangent, at out); the forward makes it %dd (at d)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_render_is_told_at_its_line(what: str) -> None:
    old, new, message = WRONG[what]
    found = told(changed(old, new))
    line = MIXER.read_text("utf-8").split(old)[0].count("\n") + 1
    assert any(message in f for f in found), found
    assert any(f.startswith(f"{line}: ") for f in found) or "no step" in message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("group excite :", "group se :", "name 'se' is already on line 67"),
        ("group excite :", "group xin :", "name 'xin' is already on line"),
        (
            "s e1 z e2 sg se\n",
            "s e1 z e2 sg se\n  group again : gate = sg se\n",
            "site 'sg' is already",
        ),
    ],
)
def test_a_name_and_a_site_of_a_group_are_its_own(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        changed(old, new)


@pytest.mark.parametrize("wrong", [["swish"], "swish", None, entries.SWISH.__class__])
def test_what_is_no_entry_is_refused(wrong: Any) -> None:
    with pytest.raises(TypeError, match="is no entry of the table"), ops.extended(wrong):
        pass


@pytest.mark.parametrize("kinks", [(0.0,), (0.0, 6.0), (-3.0, 3.0)])
def test_roads_are_taken_on_every_side_of_the_kinks(kinks: tuple[float, ...]) -> None:
    relu = ops.lookup("relu")
    assert relu is not None
    (x,) = point(replace(relu, kinks=kinks), 0, 0).xs
    edges = (-np.inf, *kinks, np.inf)
    assert all(((low < x) & (x < high)).any() for low, high in pairwise(edges))
    assert min(abs(x - k).min() for k in kinks) >= 0.1
    assert x.min() < min(kinks) - 4
    assert x.max() > max(kinks) + 4


@pytest.fixture(scope="module")
def bench(net: Net) -> Bench:
    return Bench(net)


FAULTS = (
    "read moved",
    "saved activation exchanged",
    "mask of the other kind",
    "weight exchanged",
    "incoming cotangent exchanged",
    "fan-in operand dropped",
    "fan-in operand doubled",
    "fan-in operand exchanged",
    "parameter of a definition exchanged",
    "slot of a clause exchanged",
    "loss: wrong target",
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_every_block_is_seen_by_the_numbers_alone(fault: str, bench: Bench) -> None:
    found: dict[str, Any] = {}
    for mutant in bench.mutants():
        if mutant.fault != fault or mutant.block in found:
            continue
        outcome = bench.outcome(mutant)
        if outcome.status != "refused":
            found[mutant.block] = outcome.status
    assert found
    assert set(found.values()) == {"caught"}


@pytest.mark.slow
def test_every_fault_is_refused_caught_or_explained(bench: Bench) -> None:
    outcomes = [bench.outcome(mutant) for mutant in bench.mutants()]
    assert [o.mutant.text for o in outcomes if o.status == "unexplained"] == []


# -- what a description may say of them --------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("attention v=v q=q k=k", "attention v q k q", "reads 3 sites (q, k, v); found 4"),
        ("attention v=v q=q k=k", "attention v=v q=q w=k", "attention has no input 'w'"),
        ("attention v=v q=q k=k", "attention v=v v=q k=k", "attention has its input v already"),
        (
            "gate g=sg x=dr",
            "gate sg dr",
            "gate reads an image (channels × rows × columns); sg is c",
        ),
        ("a   = at + xin + s1", "a   = at + xin + s", "unknown site 's'"),
        ("  rounding    to nearest", "  rounding    down", "no rounding 'down'"),
        (
            "excite : seBlock = s e1",
            "excite : seBlock = e1",
            "reads s and dr from outside",
        ),
        ("excite : seBlock = s e1", "excite : swish = s e1", "swish has not the parameters"),
        ("r0      : Row 8 32", "r0      : Row 8 32 at 8", "Row has no rows and columns"),
        ("  Flat 8 at 8", "  f0 : Flat 8 at 8", "Flat has no weight record"),
        ("  readout 16\n", "", "r1 is the last layer, and does not give the logits"),
    ],
)
def test_what_does_not_fit_is_told(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError) as told:
        changed(old, new)
    assert message in told.value.message


def test_a_parameter_may_be_left_out() -> None:
    """``convo`` has a bias or not: one entry, and a clause for each parameter that is there."""
    text = MIXER.read_text("utf-8").replace("c1  = convn 3×3 (W1) xin\n  n1", "c1  = {} xin\n  n1")
    text = text.replace("%dw = convnBackBatched(W1)\n", "%dw = convoBackBatched(W1)\n")
    bare = read_net(Source("bare.net", text.format("convo 3×3 (W1)")))
    both = text.format("convo 3×3 (W1, b1)").replace("W1 ← %dc   g1", "W1,b1 ← %dc   g1")
    for described, names in ((bare, {"W₁"}), (read_net(Source("both.net", both)), {"W₁", "b₁"})):
        derived = derive(described)
        assert confirm(derived).ok
        site = described.blocks["Mix"].sites["Mix"][0]
        assert {p.lean for p in site.parameters} == names
        assert [c.covers for c in site.clauses] == [("W",), ("b",)][: len(names)]
