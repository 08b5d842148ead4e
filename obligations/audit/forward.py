"""The forward half of an audit: parameters, sites and what is between them, the loss."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from obligations.audit.match import Matching
from obligations.audit.rows import Ledger, Mismatch, close, difference, text, unless
from obligations.audit.unroll import Key, Place, kernel_size, window
from obligations.description import Net
from obligations.errors import InputError, nearest
from obligations.ops import Formula, Operation
from obligations.stablehlo import Pattern, Site


def forward(m: Matching, out: Ledger) -> None:
    """Every row about the forward half."""
    _parameters(m, out)
    _biases(m, out)
    _wiring(m, out)
    _convolutions(m, out)
    _activations(m, out)
    _pools(m, out)
    _normalisations(m, out)
    _loss(m, out)


def stated(net: Net, convention: str) -> str:
    """What the description says of a convention; empty when it does not."""
    found = net.conventions.get(convention)
    return "" if found is None else found.value


def places(m: Matching, family: str = "") -> list[tuple[Place, Site]]:
    """The matched places, those of a family where one is named."""
    found = [(p, m.sites[key]) for key, p in m.unrolled.places.items() if key in m.sites]
    return [(p, site) for p, site in found if not family or p.family == family]


def formulas(m: Matching) -> Iterator[tuple[Place, Formula, Site]]:
    """The matched places whose operation has formulas."""
    for place, site in places(m):
        own = place.site.operation.artifact
        if isinstance(own, Formula):
            yield place, own, site


def bias_expected(place: Place) -> str | None:
    """The artifact name of a convolution's bias."""
    return place.tensor("bias") if place.family == "convolution" else None


def biases_off(net: Net) -> bool | None:
    """Whether the description says the artifact has no convolution biases; None: it is silent."""
    found = net.conventions.get("biases")
    if found is None:
        return None
    word = found.value.split(" ", 1)[0]
    if word not in ("off", "on"):
        message = f"the audit cannot tell what biases '{found.value}' says"
        raise InputError(
            net.source, found.span, message, hint="write 'off in the artifact' or 'on in …'"
        )
    return word == "off"


def expected_tensors(m: Matching) -> dict[str, Place]:
    """The trained tensors that the artifact should have, by name."""
    off = biases_off(m.unrolled.net)
    out = {}
    for place in m.unrolled.places.values():
        bias = bias_expected(place)
        for name in place.tensors:
            if name == bias and (off or (off is None and name not in m.found.parameters)):
                continue
            out[name] = place
    return out


def _parameters(m: Matching, out: Ledger) -> None:
    row = out.row("parameters", "tensors", "names and shapes")
    have = m.found.parameters
    wanted = expected_tensors(m)
    header = m.function.line
    for name, place in wanted.items():
        where = f"{name} ({place.label})"
        if name not in have:
            hint = nearest(name, set(have) - set(wanted))
            row.check(
                header, where, f"no parameter %{name}" + (f" ({hint})" if hint else ""), "one"
            )
        else:
            shape, due = _plain(have[name]), _plain(m.unrolled.shapes[name])
            row.check(header, where, shape, due)
    off = {bias_expected(p) for p in m.unrolled.places.values()}
    for name in have if m.found.loss is not None else ():
        if name not in wanted and name not in off:
            line = m.line(m.found.updates[name].value) if name in m.found.updates else header
            row.extra(line, name, "a parameter", "none of this name")


def _plain(shape: tuple[int, ...]) -> tuple[int, ...]:
    """A shape without its dimensions of size one, which a layout may have or not."""
    return tuple(n for n in shape if n != 1)


def _biases(m: Matching, out: Ledger) -> None:
    off = biases_off(m.unrolled.net)
    row = out.row("biases", "convolutions", stated(m.unrolled.net, "biases") or "not said")
    seen: Counter[str] = Counter()
    for place, site in places(m, "convolution"):
        bias, where = site.attributes["bias"], place.label
        none = bias in ("absent", "zero")
        seen[bias if none else "present"] += 1
        line = site.attributes["bias_line"] or site.line
        own = bias_expected(place)
        due = "none, or one bound to zero" if off else f"%{own}"
        ok = none if off else bias == own or (off is None and none)
        have = f"the bias is {bias if none else '%' + bias}"
        spread = site.attributes.get("bias_dims", (1,))
        row.count(
            where,
            [
                *unless(ok, line, where, have, due),
                *difference(line, where, spread, (1,), "the bias spread over dimension"),
            ],
        )
    words = {"absent": "absent", "zero": "bound to zero", "present": "present"}
    row.note = ", ".join(f"{n} {words[what]}" for what, n in seen.items())


def _wiring(m: Matching, out: Ledger) -> None:
    row = out.row("forward", "sites", "what each site reads")
    for key, place in m.unrolled.places.items():
        site = m.sites.get(key)
        if site is None:
            row.count(
                place.label,
                [
                    Mismatch(
                        m.missing_line(key), place.label, f"no {_noun(place)}", _reads(m, place)
                    )
                ],
            )
            continue
        want = [m.value(k) for k in place.inputs]
        if None in want:
            # What it should read was not found, which is told there.
            allowed = set().union(*(m.possible(k) for k in place.inputs))
            problems = [] if allowed & set(site.inputs) else [_misread(m, place, site)]
        else:
            same = sorted(site.inputs) == sorted(str(w) for w in want)
            problems = [] if same else [_misread(m, place, site)]
        row.count(place.label, problems)
    for site in m.found.sites:
        if site.index not in m.claimed:
            hint = ""
            if site.family == "mask":
                hint = " (its options: " + ", ".join(m.unrolled.net.settings) + ")"
            row.extra(
                site.line,
                f"%{site.value}",
                f"a {site.kind} of {', '.join('%' + i for i in (*site.inputs, *site.params))}",
                "no such site" + hint,
            )


def _noun(place: Place) -> str:
    tensors = ", ".join(f"%{n}" for n in place.tensors)
    return f"{place.word} with {tensors}" if tensors else place.word


def _reads(m: Matching, place: Place) -> str:
    return f"{place.word} of " + " and ".join(name_of(m, k) for k in place.inputs)


def name_of(m: Matching, key: Key) -> str:
    """A place as a message calls it: ``d2.c1 (%v37)``."""
    value = m.value(key)
    label = "the input" if key[0] == "" else f"{key[0]}.{key[1]}"
    return label if value is None else f"{label} (%{value})"


def _misread(m: Matching, place: Place, site: Site) -> Mismatch:
    at = {m.value(k): k for k in m.unrolled.places}
    at[m.input] = ("", "")
    have = " and ".join(name_of(m, at[i]) if i in at else f"%{i}" for i in site.inputs)
    want = " and ".join(name_of(m, k) for k in place.inputs)
    return Mismatch(site.line, place.label, f"the {place.word} reads {have}", want)


def _convolutions(m: Matching, out: Ledger) -> None:
    net = m.unrolled.net
    kernels = out.row("kernels", "convolutions", "rows × columns, dilation, groups")
    strides = out.row("strides", "convolutions", "of every site")
    phases = out.row("padding", "convolutions", stated(net, "padding"))
    for place, site in places(m, "convolution"):
        a, line, where = site.attributes, site.line, place.label
        operation = place.site.operation
        due = window(operation, place.axes["kH"])
        wide = window(operation, place.axes["kW"])
        groups = 1 if "ic" in place.axes else place.axes["c"]
        kernels.count(
            where,
            [
                *difference(line, where, a["kernel"], kernel_size(place), "kernel"),
                *difference(line, where, a["dilation"], (1, 1), "dilation"),
                *difference(line, where, a["groups"], groups, "feature groups"),
                *difference(line, where, a["plain"] or "moved", True, "the weight is"),
                *(Mismatch(line, where, said, "in order") for said in a["read_as"]),
            ],
        )
        strides.check(line, where, a["stride"], (due.step, wide.step), "stride")
        size = (place.axes["h"], place.axes["w"])
        centre = (due.first, wide.first)
        phases.count(
            where,
            [
                *difference(line, where, a["phase"], centre, "the first kernel centre meets row"),
                *difference(line, where, a["sizes"], size, "the result has size"),
            ],
        )
    phases.note = "row that the first kernel centre meets"


def title(operation: Operation) -> str:
    """What the convention is called that an operation's forward is held in."""
    noun = operation.noun or operation.word
    return operation.role if operation.role == "activation" else noun.lower()


def _activations(m: Matching, out: Ledger) -> None:
    for place, own, site in formulas(m):
        operation, where = place.site.operation, place.label
        if own.over:
            continue
        convention = title(operation)
        row = out.row(convention, "sites", stated(m.unrolled.net, convention))
        a = site.attributes
        have = site.kind
        if have == own.otherwise:
            have = "values kept in {} … {}".format(*a["bounds"])
        due, read = Pattern.of(operation, own.forward).numbers, a["coefficients"]
        said = f"coefficients {text(read)}"
        numbers = unless(close(read, due), site.line, where, said, text(due))
        row.count(where, difference(site.line, where, have, place.word) or numbers)


def _pools(m: Matching, out: Ledger) -> None:
    for place, site in places(m, "window"):
        out.row("pool", "sites", stated(m.unrolled.net, "pool")).count(
            place.label,
            [
                *difference(site.line, place.label, site.kind, place.word),
                *pool_problems(place, site.line, place.label, site.attributes),
                *difference(site.line, place.label, site.attributes["init"], -math.inf, "from"),
            ],
        )
    average = out.row("average", "sites", "divisor h·w")
    for place, site in places(m, "average"):
        n = place.axes["h"] * place.axes["w"]
        average.count(
            place.label,
            [
                *difference(site.line, place.label, site.attributes["count"], n, "sums over"),
                *difference(
                    site.line, place.label, site.attributes["divisor"], float(n), "divisor"
                ),
            ],
        )


def pool_problems(place: Place, line: int, where: str, a: Mapping[str, Any]) -> list[Mismatch]:
    """A pool's window, stride and the last row of its first window; later pads are no matter."""
    size = kernel_size(place)
    due = tuple(window(place.site.operation, n) for n in size)
    last = tuple(n - 1 - low for n, (low, _) in zip(a["window"], a["pads"], strict=True))
    return [
        *difference(line, where, a["window"], size, "window"),
        *difference(line, where, a["strides"], tuple(d.step for d in due), "stride"),
        *difference(line, where, last, tuple(d.first for d in due), "the first window ends at row"),
    ]


def _normalisations(m: Matching, out: Ledger) -> None:
    found = [(place, own, site) for place, own, site in formulas(m) if own.over]
    used = Counter(site.attributes["epsilon"] for _, _, site in found)
    usual = used.most_common(1)[0][0] if used else 0.0
    for place, own, site in found:
        operation, a, where = place.site.operation, site.attributes, place.label
        convention, line = title(operation), a["statistic_line"]
        given = [p for p in operation.parameters if p.trained]
        due = Pattern.of(operation, own.forward).numbers
        spread = tuple(place.dims(p.axes) for p in given)
        out.row(convention, "sites", stated(m.unrolled.net, convention)).count(
            where,
            [
                *difference(
                    line,
                    where,
                    _statistics(a["statistics"], a["axes"]),
                    _statistics(own.statistics, place.dims(own.over)),
                ),
                *difference(site.line, where, a["coefficients"], due, "coefficients"),
                *difference(site.line, where, a["spread"], spread, "γ and β along"),
                *difference(site.line, where, a["deviation_of"], site.inputs[0], "deviation of"),
                *(
                    x
                    for name, p in zip(site.params, given, strict=False)
                    for x in difference(
                        site.line, where, f"%{name}", f"%{place.tensor(p.role)}", p.role
                    )
                ),
            ],
        )
        n = float(place.count(own.over))
        out.row(f"{operation.noun} divisor", "sites", "·".join(own.over)).count(
            where,
            [
                *difference(line, where, a["divisor"], n, "the variance is divided by"),
                *difference(a["mean_line"], where, a["mean_divisor"], n, "the mean is divided by"),
            ],
        )
        sign = a["epsilon"] > 0
        epsilons = out.row("ε", "sites", "one, positive")
        epsilons.check(line, where, a["epsilon"], usual if sign else "a positive number", "ε is")
        epsilons.note = ", ".join(f"{text(e)} at {n}" for e, n in used.items())


def _statistics(called: str, axes: tuple[int, ...]) -> str:
    return f"{called} statistics over [{', '.join(map(str, axes))}]"


def _loss(m: Matching, out: Ledger) -> None:
    said = stated(m.unrolled.net, "loss")
    row = out.row("loss", "conditions", said)
    loss, seed = m.found.loss, m.unrolled.net.loss.softmax
    if seed is None:
        out.note("loss", "not checked: its cotangent is no softmax less a target")
        return
    if loss is None:
        end = m.line(m.value(m.unrolled.output)) or m.function.line
        softmax = (op.line for op in m.function.operations if op.kind == "divide")
        line = next((at for at in softmax if at > end), end)
        row.check(line, "loss", "no softmax less a target", "the cotangent of a cross-entropy")
        return
    line = loss.line
    batch = float(next(iter(m.unrolled.places.values())).axes["N"])
    logits = f"%{m.value(m.unrolled.output)}"
    row.count("loss of", difference(line, "loss", f"%{loss.logits}", logits, "softmax of"))
    chosen = seed.chosen
    constants = seed.constants(loss.kept, loss.batch)
    value = round(constants[chosen].item(), 12)
    if said.startswith(seed.plain):
        plain = seed.due({**constants, chosen: 0 * constants[chosen]}, loss.classes)
        row.check(line, "loss", (loss.kept, loss.uniform), plain, "target and uniform share")
    else:
        good, have = 0.0 < value < 1.0, f"{chosen} is {text(value)}"
        row.count(f"loss {chosen}", unless(good, line, "loss", have, "between 0 and 1"))
        _, due = seed.due(constants, loss.classes)
        same = math.isclose(loss.uniform, due, rel_tol=1e-6, abs_tol=1e-12)
        have = f"the uniform share is {text(loss.uniform)}"
        row.count("loss share", unless(same, line, "loss", have, f"{seed.share} = {text(due)}"))
    mean = difference(line, "loss", loss.batch, batch, "divided by")
    row.count("loss mean", mean if "mean over the batch" in said else [])
    divisor = f"1/{m.unrolled.net.loss.divisor} = 1/{text(loss.batch)}"
    row.note = f"{chosen} = {text(value)}, K = {loss.classes}, {divisor}, target %{loss.target}"
