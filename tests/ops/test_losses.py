"""Losses as entries of the operation table: one is added, and nothing else is told of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from squared_error import (
    FAMILY,
    MSE,
    NAMES,
)

from obligations.confirm import check, confirm, measure
from obligations.confirm.roads import loss_point
from obligations.description import Net, load
from obligations.errors import InputError, Source
from obligations.ledger import Ledger
from obligations.mutation.mutants import Bench, Outcome
from obligations.ops import extended, losses
from obligations.ops.base import Family, Loss
from obligations.ops.loss import SMOOTHED
from obligations.statements import derive
from obligations.writing import tie_file

TINY = Path(__file__).parents[1] / "nets" / "tiny.net"
BOUND = 1e-13


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny net with another loss."""
    text = TINY.read_text("utf-8")
    for old, new in (
        ("label-smoothed cross-entropy at a general target", "mean squared error"),
        ("smoothed cross-entropy", "squared error"),
        ("smoothedCE", "mse"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    found = tmp_path_factory.mktemp("nets") / "squares.net"
    found.write_text(text, "utf-8")
    return found


@pytest.fixture
def net(path: Path) -> Iterator[Net]:
    with extended(FAMILY):
        yield load(str(path))


def ledger(net: Net) -> Ledger:
    return confirm(derive(net))


# -- every loss --------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [SMOOTHED, MSE], ids=lambda x: x.word)
def test_the_gradient_is_the_derivative_of_the_value(loss: Loss) -> None:
    for line in measure(found=[loss_point(loss, seed) for seed in range(3)]):
        assert line.errors["formula", "complex step"] < BOUND
    wrong = replace(loss, gradient=lambda *at: -loss.gradient(*at))
    (line,) = measure(found=[loss_point(wrong, 0)])
    assert line.errors["formula", "complex step"] > 1.0


# -- one more ----------------------------------------------------------------------------------


def test_a_loss_is_known_by_its_entry_alone(path: Path, net: Net) -> None:
    assert net.loss is MSE
    assert losses()["mean squared error"] is MSE
    derived = derive(net)
    found = derived.by_name()
    names = [n for b in found["tiny_lossCot_is_mse_grad"].declaration.binders for n in b.names]
    assert names == ["N", "nCls", "twoStr", "mStr", "M", "w", "x", "y", "n", "j"]
    names = [n for b in found["tiny_net_tiedB"].declaration.binders for n in b.names]
    assert names[-5:] == ["M", "w", "bf16", "x", "y"]
    text = tie_file.text(derived, checked=False)
    assert MSE.says_row in " ".join(text.split())
    assert "cross-entropy" not in text


def test_its_statements_hold(net: Net) -> None:
    found = ledger(net)
    assert [r.name for r in (*found.rows, *found.further) if r.verdict != "holds"] == []
    assert {"capstone", "loss"} <= {r.kind for r in found.rows}
    named = [r.name for r in found.further if "replica" in r.name]
    assert "synchronised BatchNorm, a replica dividing by R·M" in named


def test_a_file_with_it_is_recognised(path: Path, net: Net) -> None:
    text = tie_file.text(derive(net), checked=False)
    found = check(Source("Squares.lean", text), net=str(path))
    verdicts = {r.name.rsplit(".", 1)[-1]: (r.kind, r.verdict) for r in found.ledger.rows}
    assert verdicts["tiny_lossCot_is_mse_grad"] == ("loss", "holds")
    assert verdicts["tiny_net_tiedB"] == ("capstone", "holds")


def test_its_faults_are_caught(net: Net) -> None:
    bench = Bench(net)
    made = [m for m in bench.mutants() if m.fault.startswith("loss: ")]
    outcomes: dict[str, list[Outcome]] = {}
    for mutant in made:
        outcomes.setdefault(mutant.fault, []).append(bench.outcome(mutant))
    strings = outcomes.pop("loss: string exchanged")
    assert {o.status for o in strings} == {"equivalent"}
    assert {f: len(o) for f, o in outcomes.items()} == {
        "loss: sign": 3,
        "loss: factor lost": 5,
        "loss: wrong target": 3,
    }
    assert {o.status for found in outcomes.values() for o in found} == {"caught"}


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("sign", lambda n, k, m, two, by, z, y: 2 * (y - z) / m),
        ("factor", lambda n, k, m, two, by, z, y: (z - y) / m),
        ("target", lambda n, k, m, two, by, z, y: 2 * (z - np.roll(y, 1, -1)) / m),
    ],
)
def test_an_entry_that_is_wrong_is_caught(path: Path, what: str, wrong: Any) -> None:
    names = (replace(NAMES[0], value=wrong), *NAMES[1:])
    with extended(Family(names=names, losses=(MSE,))):
        found = {r.kind: r.verdict for r in ledger(load(str(path))).rows}
    assert found["capstone"] == "not the gradient"
    assert found["loss"] == "fails"


# -- the table ---------------------------------------------------------------------------------


def test_what_the_table_has_not_is_refused(path: Path) -> None:
    with pytest.raises(InputError, match="the loss cannot be 'mean squared error"):
        load(str(path))


def test_no_two_losses_begin_with_the_same_words() -> None:
    with (
        pytest.raises(ValueError, match="twice"),
        extended(Family(losses=(replace(MSE, says=("cross-entropy",)),))),
    ):
        losses()
