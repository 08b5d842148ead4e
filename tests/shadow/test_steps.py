"""The chain rule with the table's steps, and what is claimed beyond one device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from obligations.confirm import beyond, hypotheses
from obligations.confirm.whole import NetCheck
from obligations.description.reader import load
from obligations.ledger.rows import BOUND
from obligations.shadow.evaluate import relative_error
from obligations.shadow.forward import axes, input_gradient, parameter_gradient, run
from obligations.shadow.sampling import sample
from obligations.shadow.steps import gradient_nodes, reverse, site_parameters
from obligations.statements.environment import typed_environment
from obligations.statements.tie_file import Derived, derive

TINY = str(Path(__file__).resolve().parents[1] / "nets" / "tiny.net")


@pytest.mark.parametrize("name", ["resnet34", "mobilenetv2"])
def test_reverse_is_the_derivative(name: str) -> None:
    derived = derive(load(name, {}))
    for section in derived.sections.values():
        for kind in section.block.kinds:
            fwd = section.forwards[kind.name]
            rng = np.random.default_rng(5)
            point = sample(derived.net, section.block, kind, fwd, rng, dropped=False)
            values = run(point.case)
            back = reverse(point.case, values, point.dy)
            assert (
                relative_error(back[fwd.block.input], input_gradient(point.case, point.dy)) < BOUND
            )
            for site in fwd.sites.values():
                if not site.operation.clauses:
                    continue
                nodes = gradient_nodes(
                    site.operation,
                    axes(site, point.case.sizes),
                    site_parameters(point.case, site),
                    [values[read] for read in site.inputs],
                    back[site.name],
                )
                for p in site.parameters:
                    if p.trained:
                        wanted = parameter_gradient(point.case, p.lean, point.dy).reshape(-1)
                        scale = float(np.abs(back[site.name]).sum())
                        assert relative_error(nodes[p.symbol].reshape(-1), wanted, scale) < BOUND


@pytest.fixture(scope="module")
def tiny() -> tuple[Derived, NetCheck]:
    derived = derive(load(TINY, {}))
    return derived, NetCheck.build(derived)


def test_replicas_rounding_targets(tiny: tuple[Derived, NetCheck]) -> None:
    rows = beyond.rows(*tiny, (0, 1))
    assert len(rows) == 10
    assert [r.name for r in rows if r.verdict != "holds"] == []
    assert {r.kind for r in rows} == {"beyond one device", "contrast", "measured"}


def test_a_replica_that_keeps_a_sum_to_itself_is_seen(tiny: tuple[Derived, NetCheck]) -> None:
    """Each of the four exchanges matters: leave one out and the claim fails."""
    from obligations.shadow.sampling import sample_net

    _, check = tiny
    point = sample_net(check.whole, np.random.default_rng(3), batch=6)
    wanted = beyond.global_nodes(check, point)
    own = {"B": point.given["B"] / beyond.REPLICAS}

    def deviation(skip: int | None) -> float:
        calls = 0

        def exchange(parts: list[np.ndarray]) -> list[np.ndarray]:
            nonlocal calls
            # The counts come first; forward and backward each start with them.
            kind = calls
            calls += 1
            alone = skip is not None and parts[0].size > 1 and kind % 3 == skip
            return parts if alone else [sum(parts[1:], parts[0])] * len(parts)

        found = beyond.replica_gradients(check, point, own, exchange)
        return beyond._deviation(found, wanted)[0]

    assert deviation(None) < BOUND
    assert all(deviation(skip) > beyond.CONTRAST for skip in range(3))


def test_hypotheses_are_earned() -> None:
    derived = derive(load("resnet34", {}))
    rows = hypotheses.rows(derived, typed_environment(derived))
    assert [r.name for r in rows if r.verdict != "holds"] == []
    names = [r.name.split(": ")[1] for r in rows if r.name.startswith("r34Id")]
    assert names == [
        "hypotheses hold together",
        "at the kink n1 = 0",
        "at the kink a = 0",
        "with var + ε ≤ 0",
        "with ε ≤ 0 < var + ε",
    ]


def test_a_hypothesis_about_the_wrong_site_is_seen() -> None:
    """A smoothness field that speaks of a site no kink reads has no distance to show."""
    derived = derive(load("resnet34", {}))
    section = derived.sections["Id"]
    smooth = section.block.smooth
    assert smooth is not None
    moved = replace(smooth, fields=(("hmid", "c1"), smooth.fields[1]))
    block = replace(section.block, smooth=moved)
    changed = {**derived.sections, "Id": replace(section, block=block)}
    rows = hypotheses.rows(replace(derived, sections=changed), typed_environment(derived))
    assert any(r.verdict != "holds" for r in rows if r.name.startswith("r34Id"))
