"""The forward half of a training step: where it ends, its sites, its loss."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from obligations.ops import Matched
from obligations.stablehlo._axes import Trace, trace
from obligations.stablehlo._formulas import (
    Entry,
    Reading,
    Recognisers,
    family,
    forward_of,
    parameters_of,
)
from obligations.stablehlo._records import Loss, Site, Unmatched
from obligations.stablehlo._terms import Algebra, is_sum, scaled, terms, tidy
from obligations.stablehlo.value_graph import LINEAR, Value, Values


@dataclass(frozen=True, slots=True)
class ConvRoles:
    """A forward convolution: what each dimension of input, kernel and output is.

    A role is ``b``, ``f``, ``o``, ``i`` or the number of a spatial axis.
    """

    x: int
    x_view: tuple[int, ...]
    y_view: tuple[int, ...]
    x_roles: tuple[str | int | None, ...]
    w_roles: tuple[str | int | None, ...]
    y_roles: tuple[str | int | None, ...]


@dataclass(slots=True)
class Forward:
    """What is known of the forward half while it is read; numbers are values."""

    known: Algebra
    formulas: Recognisers
    inside: set[int]
    loss: Loss | None
    seed: int | None
    sites: list[Site] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)
    roles: dict[int, ConvRoles] = field(default_factory=dict)
    param_of: dict[str, tuple[int, str]] = field(default_factory=dict)
    statistic_of: dict[int, int] = field(default_factory=dict)
    entries: dict[int, Entry] = field(default_factory=dict)
    within: set[int] = field(default_factory=set)
    unmatched: list[Unmatched] = field(default_factory=list)

    @property
    def values(self) -> Values:
        return self.known.values


def forward(known: Algebra, formulas: Recognisers) -> Forward:
    """Find the loss and the forward sites before it (all sites, where there is no loss)."""
    values = known.values
    found = _loss(known)
    if found is None:
        out = Forward(known, formulas, values.above(values.returned), None, None)
    else:
        loss, logits, seed = found
        out = Forward(known, formulas, values.above([logits]), loss, seed)
    for index in sorted(out.inside):
        _site(out, values[index])
    inner = {values.name(i) for i in out.within}
    out.unmatched = [u for u in out.unmatched if u.value not in inner]
    return out


def size(value: Value) -> int:
    """How many elements."""
    return math.prod(value.view)


# ---- the loss

#: How many values are looked at for the seed.
_REACH = 200


def _loss(known: Algebra) -> tuple[Loss, int, int] | None:
    values = known.values
    best: tuple[Loss, int, int] | None = None
    for value in values.table:
        if value.kind != "divide":
            continue
        raised = values[value.inputs[0]]
        total, factor = scaled(values, value.inputs[1])
        if raised.kind != "exponential" or not is_sum(values, values[total]) or factor != 1:
            continue
        if values[total].inputs[0] != raised.id:
            continue
        seed = _seed(known, value)
        if seed is not None:
            logits = _logits(values, raised.inputs[0])
            best = replace(seed[0], logits=values.name(logits)), logits, seed[1]
    return best


def _logits(values: Values, index: int) -> int:
    """The logits under a softmax's exponential: with or without their maximum taken off."""
    value = values[index]
    if value.kind == "subtract":
        top = values[scaled(values, value.inputs[1])[0]]
        if top.kind == "maximum":  # a bound some add, so that the maximum is a number
            top = values[max(top.inputs, key=lambda i: values[i].kind == "reduce")]
        if top.kind == "reduce" and top.inputs[0] == value.inputs[0]:
            return value.inputs[0]
    return index


def _seed(known: Algebra, softmax: Value) -> tuple[Loss, int] | None:
    """The last value that is softmax, target and a constant added up with coefficients."""
    values = known.values
    known.atoms.add(softmax.id)
    linear = values.below([softmax.id], lambda _, u: values[u].kind in LINEAR, _REACH)
    found = ((_difference(known, softmax, u), u) for u in sorted(linear, reverse=True))
    seed = next(((loss, u) for loss, u in found if loss is not None), None)
    known.atoms.discard(softmax.id)
    return seed


def _difference(known: Algebra, softmax: Value, index: int) -> Loss | None:
    """The loss whose cotangent a value is, when that is softmax, target and a constant."""
    values = known.values
    own = (("v", softmax.id),)
    form = terms(known, index)
    targets = [p for p in form if p not in (own, ())]
    if len(targets) != 1 or len(targets[0]) != 1 or own not in form:
        return None
    kind, target, *_ = targets[0][0]
    if kind != "v" or values[target].kind != "argument":
        return None
    scale = form[own]
    total = values[scaled(values, softmax.inputs[1])[0]]
    (axis,) = total.attributes["dimensions"][-1:]
    return Loss(
        "",
        softmax.name,
        values.name(target),
        values.name(index),
        tidy(1 / scale),
        tidy(-form[targets[0]] / scale),
        tidy(0.0 - form.get((), 0.0) / scale),
        total.views[0][axis],
        values[index].line,
    )


# ---- sites


#: Where a formula's forward may end, beside the functions in it.
_ENDS = LINEAR | {"maximum", "minimum", "clamp", "select"}


def _site(f: Forward, value: Value) -> None:
    if value.kind in _ENDS | f.known.functions and _by_formula(f, value):
        return
    match value.kind:
        case "convolution":
            _convolution(f, value)
        case "dot_general":
            _dense(f, value)
        case "add":
            _sum(f, value)
        case "reduce_window":
            _pool(f, value)
        case "reduce":
            _global_pool(f, value)
        case "multiply":
            _factor(f, value)
        case "tanh" | "logistic" | "power" | "concatenate" | "log" | "exponential":
            f.unmatched.append(Unmatched(f"forward {value.kind}", None, value.name, value.line))


def _add(
    f: Forward,
    kind: str,
    family: str,
    value: int,
    inputs: Iterable[int],
    params: Mapping[str, str],
    attributes: Mapping[str, Any],
) -> int:
    """Append a site; ``params`` are names by role."""
    values = f.values
    index = len(f.sites)
    f.sites.append(
        Site(
            index,
            kind,
            family,
            values.name(value),
            tuple(values.name(i) for i in inputs),
            tuple(params.values()),
            attributes,
            values[value].line,
        )
    )
    f.at[value] = index
    f.known.atoms.add(value)
    for role, name in params.items():
        f.param_of.setdefault(name, (index, role))
    return index


def _convolution(f: Forward, value: Value) -> None:
    values = f.values
    left = trace(values, value.inputs[0], value.views[0], f.known.atoms)
    right = trace(values, value.inputs[1], value.views[1])
    weight = values[right.base]
    if weight.kind != "argument":
        f.unmatched.append(Unmatched("forward convolution", None, value.name, value.line))
        return
    numbers = value.attributes["dim_numbers"]
    spatial = range(len(value.view) - 2)
    kernel, pads, phase = [], [], []
    stride, dilation = value.attributes["stride"], value.attributes["rhs_dilate"]
    for k in spatial:
        axis = left.axes[numbers[0].index(k)]
        taps = value.views[1][numbers[1].index(k)]
        low, high = value.attributes["pad"][k]
        before = axis.offset * value.attributes["lhs_dilate"][k]
        after = axis.size - axis.count - axis.offset
        kernel.append(taps)
        pads.append((low + before, high + after))
        phase.append(dilation[k] * ((taps - 1) // 2) - low - before)
    groups = value.attributes["feature_group_count"]
    features = value.views[0][numbers[0].index("f")]
    kind = "grouped"
    if groups in (1, features):
        kind = called(f, Matched("convolution", "one" if groups == 1 else "each"))
    zero = f.values.zero_adds.get(value.id)
    # Only an added broadcast of a zero vector is a bias; a reshape of the sum stays one line.
    attributes = {
        "kernel": tuple(kernel),
        "stride": stride,
        "pads": tuple(pads),
        "phase": tuple(phase),
        "dilation": dilation,
        "groups": groups,
        "bias": "zero" if zero is not None else "absent",
        "bias_line": zero,
        "element": value.steps[0].operation.result_types[0].element,
        "plain": right.plain and all(a.scale == 1 for a in left.axes),
        "sizes": tuple(value.view[numbers[2].index(k)] for k in spatial),
    }
    roles = ConvRoles(
        left.base,
        left.view,
        value.view,
        _of_base(left, numbers[0]),
        _of_base(right, numbers[1]),
        tuple(numbers[2]),
    )
    attributes["read_as"] = _read_as(roles, kernel)
    params = {"weight": weight.name}
    index = _add(f, kind, "convolution", value.id, [left.base], params, attributes)
    f.roles[index] = roles


def _read_as(roles: ConvRoles, kernel: Sequence[int]) -> tuple[str, ...]:
    """What a convolution takes otherwise than in order; empty when nothing is.

    Input, kernel and result must name their spatial axes in one order, so that rows meet rows; a
    kernel of one tap has no order. A weight has its output features before its input's.
    """
    order = {
        "input": [r for r in roles.x_roles if isinstance(r, int)],
        "kernel": [r for r in roles.w_roles if isinstance(r, int) and kernel[r] > 1],
        "result": [r for r in roles.y_roles if isinstance(r, int)],
    }
    first = order["result"]
    out = [
        f"rows of the {name} meet columns of the result"
        for name in ("input", "kernel")
        if order[name] != [r for r in first if r in order[name]]
    ]
    letters = [r for r in roles.w_roles if r in ("o", "i")]
    if letters == ["i", "o"]:
        out.append("the weight's input and output features are exchanged")
    return tuple(out)


def _of_base(operand: Trace, roles: tuple[str | int, ...]) -> tuple[str | int | None, ...]:
    """The role of each dimension of a trace's base."""
    out: list[str | int | None] = [None] * len(operand.view)
    for axis, role in zip(operand.axes, roles, strict=True):
        if axis.dim is not None:
            out[axis.dim] = role
    return tuple(out)


def _dense(f: Forward, value: Value) -> None:
    values = f.values
    left = trace(values, value.inputs[0], value.views[0], f.known.atoms)
    right = trace(values, value.inputs[1], value.views[1], f.known.atoms)
    contract = value.attributes["contracting"]
    weight = values[right.base]
    if weight.kind != "argument" or len(contract[0]) != 1 or value.attributes["batching"][0]:
        f.unmatched.append(Unmatched("forward dot_general", None, value.name, value.line))
        return
    attributes = {
        "contracts": (left.axes[contract[0][0]].dim, right.axes[contract[1][0]].dim),
        "bias": "zero" if value.id in values.zero_adds else "absent",
        "bias_line": values.zero_adds.get(value.id),
    }
    kind, params = called(f, Matched("dense")), {"weight": weight.name}
    _add(f, kind, "dense", value.id, [left.base], params, attributes)


def called(f: Forward, own: Matched) -> str:
    """The word of the operation that is found so; how, where the table has none."""
    return f.formulas.matched.get(own, "avgpool" if own.combiner == "add" else own.matcher)


def _sum(f: Forward, value: Value) -> None:
    form = terms(f.known, value.id)
    bias = [p for p in form if len(p) == 1 and p[0][0] == "b"]
    linear = [p for p in form if len(p) == 1 and p[0][0] == "v"]
    if len(form) == 2 and len(bias) == 1 and len(linear) == 1:
        _bias(f, value, linear[0][0][1], bias[0][0][1], bias[0][0][2])
        return
    a, b = value.steps[0].inputs
    if (a in f.at and b in f.at) or len(linear) == len(form) == 2:
        _add(f, called(f, Matched("sum")), "sum", value.id, (a, b), {}, {})


def _by_formula(f: Forward, value: Value) -> bool:
    """A site when the value has the form of a formula of the table, and nothing larger has it."""
    form = terms(f.known, value.id, piecewise=True)
    found = forward_of(f.known, form, f.formulas)
    if found is None:
        return False
    alike, reading = found
    values, saved = f.values, set(reading.saved)
    for u in values.users(value.id):
        if u in f.inside and values[u].kind in _ENDS:
            other = terms(f.known, u, piecewise=True)
            wider = forward_of(f.known, other, f.formulas)
            # The same again with other factors is more of it only where they are the formula's.
            more = set(other) != set(form) or (wider and _has(wider) and not _has(found))
            if more and wider is not None and set(wider[1].saved) == saved:
                return True  # the inner half of a clamp
    if len(saved) != 1:
        return False
    (x,) = {f.known.statistics[k].x for k in reading.statistics} or saved
    entry, kind, attributes = _read(f, alike, reading)
    tensors = parameters_of(entry, form)
    given = [p for p in entry.operation.parameters if p.symbol in tensors]
    attributes["spread"] = tuple(tensors[p.symbol][1] for p in given)
    params = {p.role: values.name(tensors[p.symbol][0]) for p in given}
    f.within |= values.above([value.id], lambda _, i: i > x and i not in f.at)
    index = _add(f, kind, family(entry.operation), value.id, [x], params, attributes)
    f.entries[index] = entry
    if reading.statistics:
        f.statistic_of[index] = reading.statistics[0]
    return True


def _has(found: tuple[tuple[Entry, ...], Reading]) -> bool:
    """Whether what is read has the numbers of a formula."""
    alike, reading = found
    pairs = [zip(reading.numbers, e.forward.numbers, strict=False) for e in alike]
    return any(all(math.isclose(a, b, rel_tol=1e-6) for a, b in p) for p in pairs)


def _read(
    f: Forward, alike: tuple[Entry, ...], reading: Reading
) -> tuple[Entry, str, dict[str, Any]]:
    """Which of the operations that are alike it is, what it is called, and what it has."""
    attributes: dict[str, Any] = {"coefficients": reading.numbers}
    if not reading.statistics:
        if reading.bounds is None:
            return alike[0], alike[0].word, attributes
        attributes["bounds"] = reading.bounds
        at = [("clip", *reading.bounds)]
        same = [e for e in alike if [a for p in e.forward.form for a in p if a[0] == "clip"] == at]
        own = same[0] if same else alike[0]
        return own, own.word if same else own.formula.otherwise or own.word, attributes
    statistic = f.known.statistics[reading.statistics[0]]
    rank = len(statistic.view)
    kept = tuple(d for d in range(rank) if d not in statistic.axes)
    same = [e for e in alike if statistic.axes == e.axes() and rank == e.rank]
    named = same or [e for e in alike if statistic.axes == e.axes(last=True) and rank == e.rank]
    other = "instance" if kept in ((0, 1), (0, rank - 1)) else "other"
    attributes |= {
        "axes": statistic.axes,
        "statistics": named[0].formula.statistics if named else other,
        "count": math.prod(statistic.view[d] for d in statistic.axes),
        "divisor": statistic.divisor,
        "mean_divisor": statistic.mean_divisor,
        "epsilon": statistic.epsilon,
        "statistic_line": statistic.line,
        "mean_line": statistic.mean_line,
        "deviation_of": f.values.name(f.known.statistics[reading.deviations[0]].x),
    }
    own = named[0] if named else alike[0]
    return own, own.word, attributes


def _bias(f: Forward, value: Value, linear: int, bias: int, dims: tuple[int, ...]) -> None:
    """A bias added to a convolution or a dense layer: the sum is the site's value from here on."""
    values = f.values
    index = f.at.get(linear)
    if index is None or f.sites[index].family not in ("convolution", "dense"):
        return
    site = f.sites[index]
    name = values.name(bias)
    attributes = {**site.attributes, "bias": name, "bias_line": value.line, "bias_dims": dims}
    params = (*site.params, name)
    f.sites[index] = replace(site, value=value.name, params=params, attributes=attributes)
    f.at[value.id] = index
    f.known.atoms.add(value.id)
    f.param_of.setdefault(name, (index, "bias"))


def window(value: Value) -> dict[str, Any]:
    """A window's attributes over the dimensions that have one (the last two, in NCHW)."""
    sizes = value.attributes["window_dimensions"]
    strides, pads = value.attributes["window_strides"], value.attributes["padding"]
    real = [d for d in range(len(sizes)) if sizes[d] != 1 or strides[d] != 1]
    return {
        "window": tuple(sizes[d] for d in real),
        "strides": tuple(strides[d] for d in real),
        "pads": tuple(pads[d] for d in real),
        "axes": tuple(real),
    }


def _pool(f: Forward, value: Value) -> None:
    step = value.steps[0].operation
    how = step.regions[0].combiner if step.regions else ""
    if how not in ("maximum", "add"):
        f.unmatched.append(Unmatched("forward reduce_window", None, value.name, value.line))
        return
    init = f.values[value.inputs[1]].number
    kind = called(f, Matched("window", combiner=how))
    attributes = {**window(value), "init": init}
    _add(f, kind, "window", value.id, [value.inputs[0]], {}, attributes)


def _global_pool(f: Forward, value: Value) -> None:
    values = f.values
    if value.id in f.known.sums or not is_sum(values, value):
        return
    axes, view = value.attributes["dimensions"], value.views[0]
    if len(view) < 4 or len(axes) != len(view) - 2 or 0 in axes:
        return
    out, factor = value.id, 1.0
    for u in values.users(value.id):
        core, n = scaled(values, u)
        if u in f.inside and core == value.id and values[u].kind in ("divide", "multiply"):
            out, factor = u, n
    attributes = {
        "axes": tuple(sorted(axes)),
        "count": math.prod(view[d] for d in axes),
        "divisor": tidy(1 / factor) if factor else math.inf,
        "view": view,
    }
    kind = called(f, Matched("average"))
    _add(f, kind, "average", out, [value.inputs[0]], {}, attributes)


def _factor(f: Forward, value: Value) -> None:
    """A product with an argument: a dropout or stochastic-depth mask, or a layer's scale."""
    values = f.values
    if value.id in f.at or any(a[0] in "id" for p in terms(f.known, value.id) for a in p):
        return
    for x, m in (value.inputs, value.inputs[::-1]):
        mask, dims = values[m], None
        if mask.kind == "broadcast_in_dim":
            dims, mask = mask.attributes["dims"], values[mask.inputs[0]]
        if mask.kind != "argument" or values[x].kind in ("argument", "splat"):
            continue
        per_example = size(mask) == size(value) or (dims is not None and 0 in dims)
        kind, role = called(f, Matched("mask")), "mask"
        if not per_example:
            kind = role = "scale"
        _add(f, kind, role, value.id, [x], {role: mask.name}, {"dims": dims})
        return
