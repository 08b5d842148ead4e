"""Hypotheses are earned: they hold together at a sample, and something is lost without them.

Per tie: how far the sample is from every kink; at a kink, that the two one-sided derivatives
differ; with ``var + ε ≤ 0`` that the value is undefined; with ``ε ≤ 0 < var + ε`` that the
statement still holds, so that positivity is sufficient and not necessary.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from obligations.confirm.block import bindings, scope_of
from obligations.lean import Environment
from obligations.ledger import BOUND, Row, Verdict
from obligations.ops import Array
from obligations.shadow import (
    STEP,
    Case,
    Evaluator,
    Point,
    axes,
    margins,
    net_values,
    output,
    rng_for,
    run,
    sample,
    site_gradient,
    site_parameters,
)
from obligations.statements import Derived, Obligation, Section

NEAR = 1e-7
"""How far on each side of a kink the one-sided derivatives are taken."""

DIFFERENT = 1e-6
"""How far apart two one-sided derivatives must be, relative to the larger."""


@dataclass(frozen=True, slots=True)
class Tie:
    """A tie under one of its block's kinds, at a sampled point."""

    obligation: Obligation
    section: Section
    point: Point


def rows(derived: Derived, env: Environment, seed: int = 0) -> list[Row]:
    """The hypothesis rows of every tie."""
    out: list[Row] = []
    for obligation in derived.obligations:
        if obligation.kind != "tie":
            continue
        section = derived.sections[obligation.block]
        kind = next(k for k in section.block.kinds if k.name == obligation.kinds[0])
        rng = rng_for(seed, f"hypotheses {obligation.name}")
        point = sample(
            derived.net, section.block, kind, section.forwards[kind.name], rng, dropped=False
        )
        tie = Tie(obligation, section, point)
        out.append(_together(tie))
        out += _kinks(tie)
        out += _epsilon(derived, env, tie)
    return out


def _row(tie: Tie, what: str, good: bool, note: str) -> Row:
    return Row(
        f"{tie.obligation.name}: {what}",
        "hypothesis",
        tie.point.kind.name,
        {},
        tie.point.margins.worst,
        Verdict.HOLDS if good else Verdict.FAILS,
        (note,),
    )


def _together(tie: Tie) -> Row:
    """Every hypothesis holds at the sample, with its distance."""
    block, point = tie.section.block, tie.point
    parts = []
    good = True
    for hypothesis in block.positive:
        for field, site in hypothesis.fields:
            name = _epsilon_name(point.case, site)
            value = float(point.case.parameters[name][0, 0])
            good = good and value > 0
            label = f"{hypothesis.binder}.{field}" if hypothesis.predicate else hypothesis.binder
            parts.append(f"{label}: {name} = {value:.2g} > 0")
    if block.smooth is not None:
        for field, site in block.smooth.fields:
            distance = _distance(point, site)
            good = good and 0 < distance < float("inf")
            parts.append(f"{block.smooth.binder}.{field}: {site} is {distance:.2g} from a kink")
    spoken = {site for _, site in block.smooth.fields} if block.smooth is not None else set()
    for reader in point.margins.kinks:
        site = point.case.fwd.sites[reader].inputs[0]
        if site not in spoken:
            good = False
            parts.append(f"no hypothesis keeps {site} from its kinks")
    return _row(tie, "hypotheses hold together", good, "; ".join(parts))


def _epsilon_name(case: Case, site: str) -> str:
    return next(p.lean for p in case.fwd.sites[site].parameters if p.of.positive)


def _distance(point: Point, site: str) -> float:
    """The distance of a site's value from the kinks of what reads it."""
    fwd = point.case.fwd
    return min(
        (point.margins.kinks[r] for r in fwd.readers(site) if r in point.margins.kinks),
        default=float("inf"),
    )


def _kinks(tie: Tie) -> list[Row]:
    """At each smoothness hypothesis's kinks, the two one-sided derivatives differ."""
    smooth = tie.section.block.smooth
    if smooth is None:
        return []
    out = []
    case = tie.point.case
    for _, site in smooth.fields:
        for reader, _ in case.fwd.consumers(site):
            for kink in reader.operation.kinks:
                low, high = _one_sided(case, site, kink, tie.point.dy)
                apart = abs(high - low) / max(abs(high), abs(low), 1e-300)
                out.append(
                    _row(
                        tie,
                        f"at the kink {site} = {kink:g}",
                        apart > DIFFERENT,
                        f"one-sided derivatives {low:.6g} and {high:.6g}",
                    )
                )
    return out


def _one_sided(case: Case, site: str, kink: float, dy: Array) -> tuple[float, float]:
    """The derivatives of ``Σ out · dy`` in one entry of ``site``, just below and above a kink.

    The entry is the one whose derivative on its own side is largest, so that the other side has
    something to differ from.
    """
    values = run(case)[site]
    index = int(np.argmax(np.abs(site_gradient(case, site, dy)[0])))
    out = []
    for side in (-NEAR, NEAR):
        bump = np.zeros(values.shape, dtype=complex)
        bump[0, index] = kink + side - values[0, index] + 1j * STEP
        total = (output(case, bump={site: bump}) * dy).sum()
        out.append(float(total.imag / STEP))
    return out[0], out[1]


def _epsilon(derived: Derived, env: Environment, tie: Tie) -> list[Row]:
    """What becomes of the statement for ε at and below zero."""
    block, point = tie.section.block, tie.point
    operations = {s.name: s.operation for s in point.case.fwd.sites.values()}
    spoken = [site for h in block.positive for _, site in h.fields]
    sites = [site for site in spoken if operations[site].undefined is not None]
    if not sites:
        return []
    undefined = True
    holding = 0.0
    tested = 0
    for site in sites:
        case = point.case
        name = _epsilon_name(case, site)
        lowest, highest = _variances(case, site)
        below = _with(point, name, -highest - 0.1)
        with np.errstate(invalid="ignore", divide="ignore"):
            # At the BatchNorm itself: a relu after it turns what is undefined into 0.
            undefined = undefined and not bool(np.any(np.isfinite(run(below.case)[site])))
        shifted = _with(point, name, -0.5 * lowest)
        if margins(shifted.case).worst > 0:
            tested += 1
            holding = max(holding, _statement_error(derived, env, tie, shifted))
    return [
        _row(
            tie,
            "with var + ε ≤ 0",
            undefined,
            f"the value is undefined at {', '.join(sites)}"
            if undefined
            else "the value is finite, which it should not be",
        ),
        _row(
            tie,
            "with ε ≤ 0 < var + ε",
            tested == len(sites) and holding <= BOUND,
            f"still holds (worst error {holding:.1e}): 0 < ε is sufficient, not necessary",
        ),
    ]


def _variances(case: Case, site: str) -> tuple[float, float]:
    """The smallest and largest value that a normalisation adds its ε to."""
    at = case.fwd.sites[site]
    undefined = at.operation.undefined
    assert undefined is not None
    params = site_parameters(case, at)
    params |= {p.symbol: np.zeros((1, 1)) for p in at.parameters if p.of.positive}
    values = undefined(axes(at, case.sizes), params, run(case)[at.inputs[0]].real)
    return float(values.min()), float(values.max())


def _with(point: Point, name: str, epsilon: float) -> Point:
    parameters = {**point.case.parameters, name: np.array([[epsilon]])}
    case = replace(point.case, parameters=parameters)
    return replace(point, case=case)


def _statement_error(derived: Derived, env: Environment, tie: Tie, point: Point) -> float:
    """The tie's own error at a point whose ε hypothesis does not hold."""
    constant = env[tie.obligation.name]
    evaluator = Evaluator(env, net_values(derived.net, env))
    scope = scope_of(constant, bindings(derived.net, tie.section, point))
    return max(e.error() for e in evaluator.equations(constant.type, scope))
