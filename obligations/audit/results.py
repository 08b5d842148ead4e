"""What a step returns beside the parameters: the loss it reports and its batch statistics."""

from __future__ import annotations

import math
from itertools import pairwise

from obligations.audit.forward import formulas, stated
from obligations.audit.match import Matching
from obligations.audit.rows import Ledger, Mismatch, difference, text, unless
from obligations.stablehlo import Reported


def results(m: Matching, out: Ledger) -> None:
    """The rows about results that are no new parameters; what is not checked is counted."""
    rest = {r.place: r for r in m.found.reported}
    _loss(m, out, rest)
    _statistics(m, out, rest)
    kept = sum(r.kind == "argument" for r in rest.values())
    states = sum(r.kind == "state" for r in rest.values())
    others = [r for r in rest.values() if r.kind not in ("argument", "state")]
    said = [f"{states} states of the optimizer"] * bool(states)
    if others:
        named = ", ".join(f"%{r.value}" for r in others[:3]) + ", …" * (len(others) > 3)
        said.append(f"{len(others)} others ({named})")
    if kept:
        said.append(f"{kept} arguments as they came")
    if said:
        out.note("other results", "not checked: " + ", ".join(said))


def _loss(m: Matching, out: Ledger, rest: dict[int, Reported]) -> None:
    """A loss recognised as a sum of logarithms is held against the loss's cotangent."""
    loss = m.found.loss
    for r in [r for r in rest.values() if r.kind == "loss"]:
        assert loss is not None
        del rest[r.place]
        batch = loss.batch
        if "mean over the batch" in stated(m.unrolled.net, "loss"):
            batch = float(next(iter(m.unrolled.places.values())).axes["N"])
        row = out.row("reported loss", "coefficients", "the cross-entropy of the cotangent")
        due = -loss.kept / batch, -loss.uniform / batch
        for what, have, want in zip(("target · log p", "log p"), r.numbers, due, strict=True):
            same = math.isclose(have, want, rel_tol=1e-5, abs_tol=1e-12)
            name = f"%{r.value}"
            said = f"{what} is summed with coefficient {have:.6g}"
            row.count(f"{name} {what}", unless(same, r.line, name, said, f"{want:.6g}"))
    scalars = [r for r in rest.values() if r.kind == "unknown" and r.size == 1]
    if scalars and "reported loss" not in out.open:
        named = ", ".join(f"%{r.value}" for r in scalars)
        out.note("reported loss", f"not checked: {named} is no sum of logarithms of the softmax")


def _statistics(m: Matching, out: Ledger, rest: dict[int, Reported]) -> None:
    """Each BatchNorm's mean and variance, where any are returned; they stand in one order."""
    # Statistics over the examples are what a net is run with afterwards.
    batch = (x for x in formulas(m) if "N" in x[1].over)
    due = {site.inputs[0]: (place, own, site) for place, own, site in batch}
    have: dict[tuple[str, str], Reported] = {}
    for r in list(rest.values()):
        if r.kind in ("mean", "variance") and r.of in due:
            have.setdefault((str(r.of), r.kind), r)
            if have[str(r.of), r.kind] is r:
                del rest[r.place]
    if not have:
        return
    row = out.row("returned statistics", "sites", "batch mean and variance, N·h·w")
    header = m.function.operations[-1].line
    ordered = sorted(have.values(), key=lambda r: r.place)
    means_first = ordered[0].kind == "mean"
    for x, (place, own, site) in due.items():
        n, where = float(place.count(own.over)), place.label
        problems: list[Mismatch] = []
        for kind in ("mean", "variance"):
            known = have.get((x, kind))
            if known is None:
                channels = math.prod(m.found.parameters[site.params[0]])
                free = (o for o in rest.values() if o.kind not in ("argument", "state"))
                line = next((o.line for o in free if o.size == channels), header)
                problems.append(Mismatch(line, where, f"no {kind} is returned", "one"))
                continue
            problems += difference(
                known.line, where, known.numbers[0], n, f"the {kind} is divided by"
            )
            if kind == "variance":
                what = "the mean in the variance is divided by"
                problems += difference(known.line, where, known.numbers[1], n, what)
        mean, variance = have.get((x, "mean")), have.get((x, "variance"))
        if mean is not None and variance is not None:
            first = mean.place < variance.place
            said = f"the {'mean' if first else 'variance'} is returned first"
            problems += unless(first == means_first, header, where, said, "as at the other sites")
        row.count(where, problems)
    for kind in ("mean", "variance"):
        at = {x: have[x, kind].place for x in due if (x, kind) in have}
        by_site = sorted(at, key=lambda x: due[x][2].index)
        for before, after in pairwise(by_site):
            if at[after] < at[before]:
                where = due[after][0].label
                said = f"its {kind} is returned before that of {due[before][0].label}"
                row.failed.add(where)
                row.mismatches.append(Mismatch(header, where, said, "sites in order"))
    counts = sorted({r.numbers[0] for r in have.values()})
    row.note = "divided by " + ", ".join(map(text, counts))
