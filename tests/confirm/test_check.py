"""Every statement of every net holds in numbers, and what is broken is seen to be broken."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from seeds import slow

from obligations.confirm.narrowing import narrowed
from obligations.confirm.net import confirm, evaluate
from obligations.confirm.whole import NetCheck
from obligations.description.reader import load, read_net
from obligations.errors import ObligationsError, Source
from obligations.lean import printer, syntax as s
from obligations.ledger.rows import BOUND, Ledger, Row
from obligations.resources import built_in_nets
from obligations.shadow.sampling import MARGIN, margins, sample
from obligations.statements.environment import typed_environment
from obligations.statements.tie_file import Derived, derive

ROOT = Path(__file__).resolve().parents[2]
TINY = str(ROOT / "tests" / "nets" / "tiny.net")
SETTINGS = [
    ("resnet34", {}),
    ("resnet34", {"precision": "f32"}),
    ("mobilenetv2", {}),
    ("mobilenetv2", {"precision": "f32"}),
    ("mobilenetv2", {"dropout": "site"}),
    ("mobilenetv2", {"precision": "f32", "dropout": "site"}),
    (TINY, {}),
]
COUNTS = {"ResNet34": 28, "MobileNetV2": 48}


def ids(case: tuple[str, dict[str, str]]) -> str:
    name, settings = case
    return " ".join([Path(name).stem, *(f"{k}={v}" for k, v in settings.items())])


@pytest.mark.parametrize("case", [slow(c) if c[1] else c for c in SETTINGS], ids=ids)
def test_every_statement_holds(case: tuple[str, dict[str, str]]) -> None:
    name, settings = case
    derived = derive(load(name, settings))
    ledger = confirm(derived)
    assert ledger.failing() == ()
    assert [r.name for r in ledger.rows] == [o.name for o in derived.obligations]
    assert len(ledger.rows) == COUNTS.get(derived.net.name, len(ledger.rows))
    assert all(r.errors for r in ledger.rows), "a row without a number checks nothing"
    for row in ledger.rows:
        # Whole nets report the margin they got; block samples keep the stated one.
        assert row.margin is None or row.kind == "capstone" or row.margin >= MARGIN
    bundles = [r for r in ledger.rows if r.kind == "bundle"]
    assert bundles
    assert all({"statement", "intent"} <= set(r.errors) for r in bundles)
    assert all(z.found <= BOUND for z in ledger.zeros)
    if derived.net.name == "MobileNetV2":
        zero_is_listed_with_its_reason(ledger)


def zero_is_listed_with_its_reason(ledger: Ledger) -> None:
    found = {z.tensor: z for z in ledger.zeros}
    assert len([t for t in found if t.startswith("b") and t.endswith(".pβ")]) == 17
    assert "b3.en, b4.en" in found["b2.pβ"].reason
    # A BatchNorm before an activation shifts something real.
    assert "b2.dβ" not in found
    assert "fcb" not in found


@cache
def derived_of(name: str) -> Derived:
    return derive(load(name, {}))


def whole_rows(derived: Derived) -> list[Row]:
    """The rows of the whole-net statements alone."""
    wanted = [o for o in derived.obligations if o.kind in ("capstone", "loss")]
    env = typed_environment(derived)
    tallies, _ = evaluate(derived, wanted, env, NetCheck.build(derived), (0,), lambda _: None)
    return [tallies[o.name].row(o) for o in wanted]


def capstone_with(derived: Derived, old: str, new: str) -> Derived:
    """The capstone with one name replaced in its statement."""
    out = []
    for o in derived.obligations:
        if o.kind == "capstone":
            type_ = _renamed(o.declaration.type, old, new)
            assert type_ != o.declaration.type
            o = replace(o, declaration=replace(o.declaration, type=type_))
        out.append(o)
    return replace(derived, obligations=tuple(out))


def _renamed(term: s.Term, old: str, new: str) -> s.Term:
    """``term`` with the last use of a name replaced; binders of a ``let`` are kept."""
    return s.substitute(term, {old: s.Ident(new)})


@pytest.mark.parametrize(
    ("net", "old", "new"),
    [
        ("resnet34", "r34Pre2", "r34Pre3"),
        ("resnet34", "r34Pre5", "r34Pre6"),
        ("mobilenetv2", "mnv2PreB8", "mnv2PreB9"),
    ],
)
def test_a_prefix_off_by_one_fails(net: str, old: str, new: str) -> None:
    rows = whole_rows(capstone_with(derived_of(net), old, new))
    assert [r.kind for r in rows if r.verdict != "holds"] == ["capstone"]


def test_a_cotangent_off_by_one_fails() -> None:
    derived = derived_of("resnet34")
    out = []
    for o in derived.obligations:
        if o.kind == "capstone":
            term = _last_clause_reads(o.declaration.type, "dyA0", "dyA1")
            assert term != o.declaration.type
            o = replace(o, declaration=replace(o.declaration, type=term))
        out.append(o)
    rows = whole_rows(replace(derived, obligations=tuple(out)))
    row = next(r for r in rows if r.kind == "capstone")
    assert row.verdict == "not the gradient"
    assert any("a0." in note for note in row.notes)


def _last_clause_reads(term: s.Term, old: str, new: str) -> s.Term:
    """Replace ``old`` in the conjunction after the lets only."""
    if isinstance(term, s.Let):
        return replace(term, body=_last_clause_reads(term.body, old, new))
    return s.substitute(term, {old: s.Ident(new)})


def test_a_stated_forward_that_disagrees_with_the_layers_fails() -> None:
    text = Path(built_in_nets()["resnet34"]).read_text("utf-8")  # type: ignore[arg-type]
    swapped = text.replace("Id c0, Id c1, Id c2,", "Id c1, Id c0, Id c2,")
    assert swapped != text
    derived = derive(read_net(Source("swapped.net", swapped), {}), allow=True)
    assert [r.name for r in whole_rows(derived) if r.verdict != "holds"] == ["r34_net_tiedB"]


def test_samples_are_not_degenerate() -> None:
    for name in ("resnet34", "mobilenetv2"):
        derived = derived_of(name)
        for section in derived.sections.values():
            for kind in section.block.kinds:
                for seed in range(3):
                    rng = np.random.default_rng(seed)
                    fwd = section.forwards[kind.name]
                    point = sample(derived.net, section.block, kind, fwd, rng, dropped=False)
                    sizes = point.case.sizes
                    h, w = (sizes[s] for s in section.block.space)
                    assert h != w
                    assert sizes["N"] >= 2
                    assert sizes["N"] * h * w >= 8
                    assert len({sizes[v] for v in kind.widths}) == len(kind.widths)
                    assert np.unique(point.dy).size == point.dy.size
                    found = margins(point.case)
                    assert found.worst >= MARGIN
                    assert all(found.regions.values())
                    for site in fwd.sites.values():
                        for p in site.parameters:
                            value = point.case.parameters[p.lean]
                            if p.symbol == "γ":
                                assert (value > 0).any()
                                assert (value < 0).any()
                            if p.symbol == "ε":
                                assert (value > 0).all()


def test_a_net_scaled_down_too_far_is_refused() -> None:
    text = Path(built_in_nets()["resnet34"]).read_text("utf-8")  # type: ignore[arg-type]
    thin = text.replace("7 → 1 × 3", "7 → 1 × 1")
    assert thin != text
    with pytest.raises(ObligationsError, match="d4 has 3 values a channel at n1"):
        confirm(derive(read_net(Source("thin.net", thin), {})))


def test_the_same_seed_gives_the_same_ledger() -> None:
    def numbers(ledger: Ledger) -> list[dict[str, float]]:
        return [dict(r.errors) for r in ledger.rows]

    first, again = confirm(derived_of(TINY)), confirm(derive(load(TINY, {})))
    assert numbers(first) == numbers(again)
    assert confirm(derived_of(TINY), seeds=(1,)).rows[0].sizes != first.rows[0].sizes


def test_the_narrow_capstone_differs_from_the_printed_one_in_sizes_only() -> None:
    derived = derived_of("resnet34")
    check = NetCheck.build(derived)
    capstone = next(o for o in derived.obligations if o.kind == "capstone")
    small = narrowed(capstone.declaration, check.env, check.by)
    before = printer.term(capstone.declaration.type).split()
    after = printer.term(small.type).split()
    changed = {(a, b) for a, b in zip(before, after, strict=True) if a != b}
    assert changed == {
        ("7", "1"), ("7", "3"), ("14", "2"), ("14", "6"), ("28", "4"), ("28", "12"),
        ("56", "8"), ("56", "24"),
    }  # fmt: skip


def test_every_declaration_is_well_typed() -> None:
    env = typed_environment(derive(load("mobilenetv2", {"dropout": "site"})))
    assert env.find("mnv2_net_tiedB") is not None
