"""What a recognised training step must satisfy on its own: its backward is its forward's."""

from __future__ import annotations

import math

from obligations.stablehlo import FanIn, Recognised

CONVS = ("conv", "depthwise", "grouped")


def disagreements(found: Recognised) -> list[tuple[int, str]]:
    """Every place where the backward half is not that of the forward sites: (line, what)."""
    out: list[tuple[int, str]] = [(u.line, f"unmatched {u.kind}") for u in found.unmatched]
    at = cotangents(found)

    def check(line: int, what: str, got: object, want: object) -> None:
        if got != want:
            out.append((line, f"{what}: {got} for {want}"))

    for step in found.steps:
        if step.site is None:
            line = step.attributes.get("mean_line", step.line)
            out.append((line, f"{step.kind} without a site"))
            continue
        site, a = found.sites[step.site], step.attributes
        check(step.line, f"{step.kind} step reads", step.incoming, at.get(site.value))
        name = f"{step.kind} step"
        if step.kind == "mask":
            low, high = site.attributes.get("bounds", (0.0, 0.0))
            want = [("GT", low)] + ([] if math.isinf(high) else [("LT", high)])
            check(step.line, f"{name} tests", a["tests"], tuple(want))
            check(step.line, f"{name} saved", set(a["saved_in"]), {site.inputs[0]})
        elif step.kind == "bn":
            n = site.attributes.get("count", 0)
            pairs = zip(a["coefficients"], (1, -1 / max(n, 1), -1 / max(n, 1)), strict=True)
            near = all(math.isclose(c, w, rel_tol=1e-9) for c, w in pairs)
            check(step.line, f"{name} coefficients {a['coefficients']}", near, True)
            check(step.line, f"{name} exact", a["exact"], True)
            check(step.line, f"{name} saved", step.saved, site.inputs[0])
            check(step.line, f"{name} scale", step.weight, site.params[0])
            for key in ("epsilon", "divisor", "mean_divisor", "axes"):
                line = a["mean_line" if key == "mean_divisor" else "statistic_line"]
                check(line, f"{name} {key}", a[key], site.attributes.get(key))
        elif step.kind in CONVS:
            f = site.attributes
            check(step.line, f"{name} stride", a["stride"], f.get("stride"))
            check(step.line, f"{name} dilation", a["dilation"], f.get("dilation"))
            check(
                step.line, f"{name} pads", a["pad_low"], tuple(low for low, _ in f.get("pads", ()))
            )
            check(step.line, f"{name} phase", a["phase"], f.get("phase"))
            check(step.line, f"{name} kernel", a["kernel"], f.get("kernel"))
            check(step.line, f"{name} groups", a["groups"], f.get("groups"))
            check(step.line, f"{name} flipped", a["flipped"], True)
            check(step.line, f"{name} layout", a["layout"], True)
            if f.get("groups") == 1:
                check(step.line, f"{name} contracts", a["contracts"] in ("o", None), True)
        elif step.kind == "maxpool":
            for key in ("window", "strides", "pads", "axes"):
                check(step.line, f"{name} {key}", a[key], site.attributes.get(key))
            check(step.line, f"{name} rule", (a["select"], a["scatter"]), ("compare GE", "add"))
        elif step.kind == "gap":
            check(step.line, f"{name} divisor", a["divisor"], site.attributes.get("count", 0))
    for name, g in found.gradients.items():
        if g.site is None or g.kind in ("unrecognised", "missing"):
            out.append((g.line, f"gradient of {name} is {g.kind}"))
            continue
        site, f = found.sites[g.site], found.sites[g.site].attributes
        check(g.line, f"cotangent of {name}", g.cotangent, at.get(site.value))
        if g.kind in ("conv", "dense", "scaled sum"):
            check(g.line, f"input of {name}", g.x, site.inputs[0])
        if g.kind == "conv":
            check(g.line, f"stride of {name}", g.attributes["stride"], f.get("stride"))
            check(g.line, f"dilation of {name}", g.attributes["dilation"], f.get("dilation"))
            low = tuple(low for low, _ in f.get("pads", ()))
            check(g.line, f"pads of {name}", g.attributes["pad_low"], low)
            check(g.line, f"kernel of {name}", g.attributes["kernel"], f.get("kernel"))
            check(g.line, f"flip of {name}", g.attributes["flipped"], False)
        if g.kind in ("conv", "dense"):
            check(g.line, f"layout of {name}", g.attributes["layout_fits"], True)
        if g.kind == "scaled sum":
            check(g.line, f"exactness of {name}", g.attributes["exact"], True)
            check(g.line, f"epsilon of {name}", g.attributes["epsilon"], f.get("epsilon"))
            check(g.line, f"divisor of {name}", g.attributes["divisor"], f.get("divisor"))
            check(
                g.line,
                f"mean divisor of {name}",
                g.attributes["mean_divisor"],
                f.get("mean_divisor"),
            )
        role = {"conv": "weight", "dense": "weight", "scaled sum": "scale"}.get(g.kind)
        check(g.line, f"kind of {name}", g.role, role or ("shift" if site.kind == "bn" else "bias"))
    for site in found.sites:
        if site.kind == "bn":
            for key in ("divisor", "mean_divisor"):
                check(
                    site.line,
                    f"bn {key}",
                    site.attributes.get(key),
                    site.attributes.get("count", 0),
                )
        elif site.kind == "gap":
            check(
                site.line,
                "gap divisor",
                site.attributes["divisor"],
                site.attributes.get("count", 0),
            )
    return sorted(out)


def cotangents(found: Recognised) -> dict[str, str]:
    """The cotangent at each forward value, by going back through the sites from the logits.

    A value whose readers' cotangents are not added up by fan-ins the file has is left out, and so
    is what lies before it.
    """
    if found.loss is None:
        return {}
    parts: dict[str, list[str]] = {found.loss.logits: [found.loss.seed]}
    out: dict[str, str] = {}
    steps = {(s.site, s.incoming): s.value for s in found.steps if s.site is not None}
    for site in reversed(found.sites):
        total = _added(parts.get(site.value, []), found.fan_ins)
        if total is None:
            continue
        out[site.value] = total
        if site.family == "sum":
            for name in site.inputs:
                parts.setdefault(name, []).append(total)
        elif (site.index, total) in steps:
            parts.setdefault(site.inputs[0], []).append(steps[site.index, total])
    return out


def _added(parts: list[str], fan_ins: tuple[FanIn, ...]) -> str | None:
    """The one value the parts add up to."""
    left = list(parts)
    while len(left) > 1:
        for f in fan_ins:
            if f.a in left and f.b in left and (f.a != f.b or left.count(f.a) > 1):
                left.remove(f.a)
                left.remove(f.b)
                left.append(f.value)
                break
        else:
            return None
    return left[0] if left else None
