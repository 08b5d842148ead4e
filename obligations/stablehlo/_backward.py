"""The backward half: the chain of cotangents from the loss, and each parameter's gradient node."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

import networkx as nx

from obligations.ops import SCALAR, Matched, applied, atom, named, optimizers
from obligations.stablehlo._affine import (
    LEFT,
    RESULT,
    RIGHT,
    Gradient,
    Solved,
    agree,
    fits,
    geometry,
)
from obligations.stablehlo._axes import MOVING, Trace, read_at, trace
from obligations.stablehlo._formulas import (
    Entry,
    Reading,
    family,
    instead_of,
    is_exact,
    read,
    shape,
    step_of,
)
from obligations.stablehlo._forward import ConvRoles, Forward, called, size, window
from obligations.stablehlo._records import BackStep, FanIn, GradNode, Unmatched, Update
from obligations.stablehlo._terms import Atom, Terms, is_sum, scaled, terms, tidy
from obligations.stablehlo.value_graph import ELEMENTWISE, LINEAR, Value, Values

#: How many values are looked at for the end of one step that a formula gives.
_REACH = 160


@dataclass(slots=True)
class Backward:
    """What is known of the backward half; numbers are values. ``depends`` is all after the seed."""

    forward: Forward
    depends: set[int]
    cotangents: set[int] = field(default_factory=set)
    queue: list[int] = field(default_factory=list)
    steps: list[BackStep] = field(default_factory=list)
    fan_ins: list[FanIn] = field(default_factory=list)
    gradients: dict[str, GradNode] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    explained: set[int] = field(default_factory=set)
    unmatched: list[Unmatched] = field(default_factory=list)

    @property
    def values(self) -> Values:
        return self.forward.values


def backward(f: Forward) -> Backward:
    """Follow the cotangent from the loss's seed; read the gradient of every updated parameter."""
    out = Backward(f, set())
    if f.seed is None:
        return out
    out.depends = f.values.below([f.seed])
    _reached(out, f.seed)
    while out.queue:
        _uses(out, heapq.heappop(out.queue))
    # First what depends on the loss; then, for a parameter without such an update, what depends on
    # any activation, so that a gradient that lost its cotangent is still seen where it stands.
    computed = {i for i in f.inside if f.values[i].kind not in ("argument", "splat", "constant")}
    for reach in (out.depends, f.values.below(computed)):
        for place, result in enumerate(f.values.returned):
            _update(out, place, result, reach)
    _missing(out)
    _leftovers(out)
    return out


def _missing(b: Backward) -> None:
    """Forward parameters no result updates by anything that depends on the loss."""
    f, values = b.forward, b.values
    spines = {_spine(values, r): r for r in reversed(values.returned)}
    for name, (site, role) in f.param_of.items():
        if name in b.gradients or role == "mask":
            continue
        result = spines.get(values.ids[name])
        value = "" if result is None else values.name(result)
        line = f.values.function.operations[-1].line if result is None else values[result].line
        b.gradients[name] = GradNode(name, role, "missing", None, None, value, {}, line, site)


def _reached(b: Backward, value: int) -> None:
    if value not in b.cotangents:
        b.cotangents.add(value)
        b.forward.known.atoms.add(value)
        heapq.heappush(b.queue, value)


def _step(
    b: Backward,
    kind: str,
    incoming: int,
    value: int,
    attributes: dict[str, Any],
    *,
    saved: int | None = None,
    weight: str | None = None,
    site: int | None = None,
) -> None:
    values = b.values
    attributes["from_line"] = _explain(b, incoming, value)
    b.steps.append(
        BackStep(
            kind,
            values.name(incoming),
            None if saved is None else values.name(saved),
            weight,
            values.name(value),
            attributes,
            values[value].line,
            site,
        )
    )
    _reached(b, value)


def _explain(b: Backward, start: int, end: int) -> int:
    """Mark what lies between two values as accounted for; the first line of it."""

    def between(_: int, operand: int) -> bool:
        return operand > start and operand in b.depends and operand not in b.cotangents

    part = b.values.above([end], between)
    b.explained |= part
    return min(b.values[v].line for v in part)


def _uses(b: Backward, g: int) -> None:
    """Every step that reads the cotangent ``g``."""
    values = b.values
    for u in values.users(g):
        value = values[u]
        match value.kind:
            case "multiply":
                _dropout(b, g, value)
            case "add":
                _fan_in(b, g, value)
            case "select_and_scatter" if value.inputs[1] == g:
                _scatter(b, g, value)
            case "broadcast_in_dim":
                _spread(b, g, value)
        if value.kind in ("multiply", "divide") and scaled(values, u)[0] == g:
            for w in values.users(u):
                if values[w].kind == "broadcast_in_dim":
                    _spread(b, g, values[w])
    for u in _after_moving(values, g):
        if values[u].kind == "convolution":
            _input_convolution(b, g, values[u])
        elif values[u].kind == "dot_general":
            _input_dense(b, g, values[u])
    _formulas(b, g)


def _after_moving(values: Values, start: int) -> list[int]:
    """The users of a value and of what transposes, pads and reverses make of it."""
    reached = values.below([start], lambda v, _: v == start or values[v].kind in MOVING)
    return sorted(u for u in reached if u != start and values[u].kind not in MOVING)


# ---- dropout, fan-in, pools


def _reading(f: Forward, x: int, family: str) -> int | None:
    """The first site of a family that reads ``x``."""
    name = f.values.name(x)
    return next((s.index for s in f.sites if s.family == family and name in s.inputs), None)


def _dropout(b: Backward, g: int, value: Value) -> None:
    f, values = b.forward, b.values
    other = value.inputs[1] if value.inputs[0] == g else value.inputs[0]
    mask = values[other]
    if mask.kind == "broadcast_in_dim":
        mask = values[mask.inputs[0]]
    found = f.param_of.get(mask.name) if mask.kind == "argument" else None
    if found is not None and f.sites[found[0]].family == "mask":
        _step(b, f.sites[found[0]].kind, g, value.id, {}, weight=mask.name, site=found[0])


def _fan_in(b: Backward, g: int, value: Value) -> None:
    a, c = value.steps[0].inputs
    if a in b.cotangents and c in b.cotangents and value.id not in b.cotangents:
        name = b.values.name
        b.fan_ins.append(FanIn(name(a), name(c), name(value.id), value.line))
        b.explained.add(value.id)
        _reached(b, value.id)


def _scatter(b: Backward, g: int, value: Value) -> None:
    saved = value.inputs[0]
    regions = value.steps[0].operation.regions
    attributes = {
        **window(value),
        "select": regions[0].combiner if regions else "",
        "scatter": regions[1].combiner if len(regions) > 1 else "",
    }
    site = _reading(b.forward, saved, "window")
    kind = called(b.forward, Matched("window", combiner="maximum"))
    _step(b, kind, g, value.id, attributes, saved=saved, site=site)


def _spread(b: Backward, g: int, value: Value) -> None:
    """A cotangent spread over the pooled dimensions, divided before or after."""
    f, values = b.forward, b.values
    dims = value.attributes["dims"]
    if len(value.view) < 4 or 0 not in dims or len(dims) >= len(value.view):
        return
    end, (core, factor) = value.id, scaled(values, value.id)
    if core != g:
        return
    for u in values.users(value.id):
        whole, n = scaled(values, u)
        if values[u].kind in ("multiply", "divide") and whole == g:
            end, factor = u, n
    alike = (s for s in f.sites if s.family == "average" and s.attributes["view"] == value.view)
    site = next(alike, None)
    attributes = {"divisor": tidy(1 / factor) if factor else math.inf, "view": value.view}
    kind = called(f, Matched("average"))
    _step(b, kind, g, end, attributes, site=None if site is None else site.index)


# ---- the steps that the table's formulas give


def _formulas(b: Backward, g: int) -> None:
    """For each formula, the last value whose every term is one of its step's, ``g`` in each.

    One that is made of another, by reading another activation too, is two steps. Two branches
    that were added have the same cotangent, hence a step for each activation that is read.
    """
    values, f = b.values, b.forward
    full = size(values[g])

    def onward(v: int, u: int) -> bool:
        value = values[v]
        if v == g:
            return True
        if value.kind == "select":  # a two-sided mask may be two selects, one within the other
            return values[u].kind == "select" and len(values.users(v)) == 1
        if v in b.cotangents or value.kind not in (*LINEAR, "reduce", "broadcast_in_dim"):
            return False
        # What is summed comes back by a broadcast; what does not is a parameter's gradient.
        back = values[u].kind in ("broadcast_in_dim", "multiply", "divide", "negate")
        return back or (size(value) == full and values[u].kind != "select")

    # The first values in order: none of them is more steps away than there are of them.
    layers = nx.bfs_layers(nx.subgraph_view(values.graph, filter_edge=onward), [g])
    near = sorted(chain.from_iterable(islice(layers, 1, _REACH + 1)))
    instead: dict[int, tuple[int, Terms, Reading]] = {}
    # A derivative may be written with the output in it: of `y = σ(x)`, as `y · (1 - y)`.
    smooth = {i for i, s in f.at.items() if s in f.entries and f.entries[s].forward.functions}
    found: dict[tuple[int, frozenset[int]], tuple[int, Terms, Reading]] = {}
    for value in (values[u] for u in near[:_REACH]):
        if value.id in b.cotangents or size(value) != full or value.kind not in (*LINEAR, "select"):
            continue
        form = terms(f.known, value.id, piecewise=True)
        for place, (keys, alike) in enumerate(f.formulas.steps.items()):
            reading = step_of(f.known, form, g, keys, alike)
            if reading is None and smooth and alike[0].step.functions:
                other = instead_of(f.known, form, g, alike)
                group = family(alike[0].operation)
                if other and any(_reading(f, x, group) is not None for x in other.saved):
                    instead[place] = value.id, form, other
                for y in smooth & {a[1] for p in form for a in p if a[0] == "v"}:
                    form = terms(f.known, value.id, piecewise=True, opened={y})
                    reading = reading or step_of(f.known, form, g, keys, alike)
            if reading is None:
                continue
            at = place, frozenset(reading.statistics or reading.saved)
            if at not in found or _rank(alike, form, reading) >= _rank(alike, *found[at][1:]):
                found[at] = value.id, form, reading
    for place in instead.keys() - {place for place, _ in found}:
        found[place, frozenset(instead[place][2].saved)] = instead[place]
    groups = tuple(f.formulas.steps.items())
    for (place, saved), (value_id, form, reading) in found.items():
        keys, alike = groups[place]
        near_by = [(o, len(other[1]) == len(keys)) for o, other in found.items() if o[0] == place]
        whole = len(form) == len(keys)
        part = not whole and any(saved < o[1] for o, _ in near_by)
        if not part and not any(o[1] < saved and complete for o, complete in near_by):
            _formula(b, g, value_id, form, reading, alike)


def _rank(alike: tuple[Entry, ...], form: Terms, reading: Reading) -> tuple[int, bool]:
    """How much of a step a form is: its terms; those without sums have numbers of their own."""
    step = alike[0].step
    return len(form), not step.statistics and reading.numbers == step.numbers


def _formula(
    b: Backward, g: int, value: int, form: Terms, reading: Reading, alike: tuple[Entry, ...]
) -> None:
    f, values = b.forward, b.values
    group = family(alike[0].operation)
    statistic = f.known.statistics[reading.statistics[0]] if reading.statistics else None
    read = [statistic.x] if statistic else list(dict.fromkeys(reading.saved))
    saved = next((x for x in read if _reading(f, x, group) is not None), read[0])
    site = _reading(f, saved, group)
    if (
        statistic is None
        and site is None
        and saved in f.at
        and f.sites[f.at[saved]].family == group
    ):
        site = f.at[saved]
    if statistic is not None:
        same = (s for s, k in f.statistic_of.items() if k == reading.statistics[0])
        site = next(same, site)
    exact = [e for e in alike if is_exact(f.known, form, g, e, statistic)]
    entry = f.entries[site] if site is not None else (exact or alike)[0]
    attributes: dict[str, Any] = {
        "coefficients": tuple(map(tidy, reading.numbers)),
        "exact": entry in exact and len(reading.parameters) == len(entry.step.symbols),
        "tests": tuple(sorted((relation, n) for _, relation, n in reading.tests)),
        "saved_in": tuple(values.name(x) for x in reading.saved),
    }
    if statistic is not None:
        attributes |= {
            "epsilon": statistic.epsilon,
            "divisor": statistic.divisor,
            "mean_divisor": statistic.mean_divisor,
            "count": math.prod(statistic.view[d] for d in statistic.axes),
            "axes": statistic.axes,
            "statistic_line": statistic.line,
            "mean_line": statistic.mean_line,
        }
    tensor = next(iter(reading.parameters)) if len(reading.parameters) == 1 else None
    weight = None if tensor is None else values.name(tensor)
    _step(b, entry.called, g, value, attributes, saved=saved, weight=weight, site=site)


# ---- input-gradients of convolutions and dense layers


def _input_convolution(b: Backward, g: int, value: Value) -> None:
    """``value`` as the gradient, at cotangent ``g``, of a convolution in its input."""
    f, values = b.forward, b.values
    left = trace(values, value.inputs[0], value.views[0], f.known.atoms)
    right = trace(values, value.inputs[1], value.views[1])
    name = values.name(right.base)
    site, role = f.param_of.get(name, (None, ""))
    if left.base != g or site is None or role != "weight" or site not in f.roles:
        return
    roles = f.roles[site]
    spatial = range(len(value.view) - 2)
    sides = (read_at(left, roles.y_view), right)
    back = Gradient(value, roles, RESULT, LEFT, RIGHT, sides, [(1, 0) for _ in spatial])
    axes: dict[Any, Solved] = {}
    taps: dict[Any, int] = {}
    straight = True
    for k in spatial:
        which = back.role(LEFT, k)
        which = k if which is None else which
        axes[which], taps[which] = back.solved(k), back.taps(k)
        # A kernel of one tap has no order.
        straight &= taps[which] == 1 or agree(which, back.role(RIGHT, k))
    out_roles = tuple(
        "f" if d == "f" else back.role(LEFT, d) for d in value.attributes["dim_numbers"][RESULT]
    )
    end = value.id
    if out_roles != roles.x_roles:
        for u in values.users(value.id):
            if values[u].kind == "transpose" and values[u].views[0] == value.view:
                moved = tuple(out_roles[d] for d in values[u].attributes["dims"])
                if moved == roles.x_roles:
                    end, out_roles = u, moved
    attributes = {
        **geometry(
            axes, taps, sorted(r for r in axes if isinstance(r, int) and r in roles.y_roles)
        ),
        "flipped": all(a.dilation > 0 or taps[r] == 1 for r, a in axes.items()),
        "groups": value.attributes["feature_group_count"],
        "contracts": back.role(RIGHT, "i"),
        "layout": out_roles == roles.x_roles,
        "straight": straight,
        "sizes": tuple(
            n for n, r in zip(values[end].view, out_roles, strict=True) if isinstance(r, int)
        ),
        "element": value.steps[0].operation.result_types[0].element,
    }
    _step(b, f.sites[site].kind, g, end, attributes, weight=name, site=site)


def _input_dense(b: Backward, g: int, value: Value) -> None:
    f, values = b.forward, b.values
    sides = [trace(values, value.inputs[i], value.views[i], f.known.atoms) for i in (0, 1)]
    contract = value.attributes["contracting"]
    for mine, other in ((0, 1), (1, 0)):
        name = values.name(sides[other].base)
        site, role = f.param_of.get(name, (None, ""))
        if sides[mine].base != g or site is None or role != "weight":
            continue
        if f.sites[site].family != "dense":
            continue
        attributes = {"contracts": tuple(sides[other].axes[d].dim for d in contract[other])}
        _step(b, f.sites[site].kind, g, value.id, attributes, weight=name, site=site)
        return


# ---- gradients of parameters


def _update(b: Backward, place: int, result: int, reach: set[int]) -> None:
    """The optimizer's tail that ends in result ``place``, when that is a parameter's new value.

    The tail is elementwise; its end is the gradient, the first value of ``reach`` that is not.
    """
    values = b.values
    parameter = _spine(values, result)
    if parameter is None or result not in reach:
        return
    target = values[parameter]
    if target.name in b.updates:
        return

    def onward(i: int, _: int) -> bool:
        kind = values[i].kind
        if i in reach:
            return kind == "all_reduce" or (kind in ELEMENTWISE and i not in b.cotangents)
        return kind in ELEMENTWISE or kind == "broadcast_in_dim"

    upward = nx.subgraph_view(values.graph.reverse(copy=False), filter_edge=onward)
    # Left to itself, the walk counts the whole graph for a depth that cannot be exceeded.
    met = list(nx.dfs_postorder_nodes(upward, result, depth_limit=len(values.table)))
    tail, beside = reach.intersection(met), [values[i] for i in met if i not in reach]
    arguments = {v.id for v in beside if v.kind == "argument"}
    constants = {v.number for v in beside if v.number is not None}
    # Of several all-reduces, the innermost along first operands.
    reduced = next((i for i in met if values[i].kind == "all_reduce" and i in tail), None)
    ends = [
        values[i]
        for i in tail
        if values[i].kind not in ("all_reduce", "broadcast_in_dim")
        and (values[i].kind not in ELEMENTWISE or i in b.cotangents)
    ]
    core = min((v.id for v in ends if size(v) == size(target)), default=None)
    if core is None:
        return
    # A scale by a deviation may follow the sum of a BatchNorm's scale gradient.
    for u in values.users(core):
        other = [i for i in values[u].inputs if i != core]
        if u in tail and values[u].kind in ("multiply", "divide") and len(other) == 1:
            form = terms(b.forward.known, other[0])
            if all(p and all(a[0] == "i" for a in p) for p in form):
                core = u
    states = [
        a
        for a in sorted(arguments)
        if a != parameter and values[a].view == target.view and values[a].view
    ]
    b.updates[target.name] = Update(
        _optimizer(values, met, core, parameter, states),
        values.name(core),
        values.name(result),
        place,
        tuple(values.name(a) for a in states),
        tuple(sorted(constants)),
        None if reduced is None else values[reduced].steps[0].operation.replicas,
        None if reduced is None else values[reduced].line,
        values[result].line,
        _signs(values, result, core, tail),
    )
    b.gradients[target.name] = _gradient(b, target.name, core)


def _signs(values: Values, result: int, core: int, tail: set[int]) -> tuple[int, ...]:
    """The signs, 1 and -1, with which a gradient enters its parameter's new value.

    Arguments count as positive. What goes into a root, a square or a divisor has no sign.
    """
    signs: dict[int, set[int]] = {result: {1}}
    for i in sorted(tail, reverse=True):
        value, mine = values[i], signs.get(i, set())
        if i == core or not mine:
            continue
        for j, sign in _passed(values, value):
            if j in tail:
                signs.setdefault(j, set()).update(s * sign for s in mine)
    return tuple(sorted(signs.get(core, ())))


def _passed(values: Values, value: Value) -> list[tuple[int, int]]:
    """The operands of an operation with the sign of its slope in each."""
    inputs = value.inputs
    match value.kind:
        case "add" | "maximum" | "minimum":
            return [(i, 1) for i in inputs]
        case "subtract":
            return [(inputs[0], 1), (inputs[1], -1)]
        case "negate":
            return [(inputs[0], -1)]
        case "multiply" if inputs[0] != inputs[1]:
            return [(inputs[0], _sign(values, inputs[1])), (inputs[1], _sign(values, inputs[0]))]
        case "divide":
            return [(inputs[0], _sign(values, inputs[1]))]
        case "clamp":
            return [(inputs[1], 1)]
        case "select":
            return [(i, 1) for i in inputs[1:]]
        case "all_reduce" | "convert" | "sign":
            return [(inputs[0], 1)]
    return []


def _sign(values: Values, index: int) -> int:
    """The sign of a factor: of its numbers and negations, its arguments being positive."""
    core, factor = scaled(values, index)
    n = values[core].number
    return -1 if (factor < 0) != (n is not None and n < 0) else 1


def _spine(values: Values, index: int) -> int | None:
    """The argument an update starts from: ``p`` in ``p - …`` or ``p + …``."""
    for _ in range(16):
        value = values[index]
        if value.kind == "subtract":
            index = value.inputs[0]
        elif value.kind == "add":
            nearer = [i for i in value.inputs if values[i].kind in ("argument", "subtract")]
            if len(nearer) != 1:
                return None
            index = nearer[0]
        else:
            break
        if values[index].kind == "argument":
            return index
    return None


def _optimizer(
    values: Values, met: Iterable[int], core: int, parameter: int, states: Sequence[int]
) -> str:
    """What the table calls an update, by the products of parameter, gradient and states it adds."""
    result = max(met)
    own = {parameter: "p", core: "g"} | {a: f"#{n}" for n, a in enumerate(states)}
    terms = {i: atom(name) for i, name in own.items()}
    for i in sorted(met):
        value = values[i]
        if i in own:
            continue
        known = [terms.get(j) for j in value.inputs]
        if value.kind in ELEMENTWISE and known and all(t is not None for t in known):
            terms[i] = applied(value.kind, [t for t in known if t is not None])
        elif value.kind in ("all_reduce", "broadcast_in_dim") and known[0] is not None:
            terms[i] = known[0]
        else:
            scalar = value.kind == "splat" or size(value) == 1
            terms[i] = SCALAR if scalar else atom("?")
    return named(terms[result], tuple(own[a] for a in states), optimizers().values())


def _gradient(b: Backward, parameter: str, node: int) -> GradNode:
    f, values = b.forward, b.values
    site, role = f.param_of.get(parameter, (None, ""))
    value = values[node]
    shape = values[values.ids[parameter]].view
    whole = trace(values, node, shape, b.cotangents)
    inner = values[whole.base]
    b.explained.add(inner.id)
    sides = _operands(b, inner) if inner.kind in ("convolution", "dot_general") else None
    if sides is None:
        found = _summed(b, node)
    elif inner.kind == "convolution":
        roles = None if site is None else b.forward.roles.get(site)
        found = _weight_convolution(whole, inner, sides, roles)
    else:
        found = _weight_dense(whole, inner, sides)
    kind, x, cotangent, attributes = found or ("unrecognised", None, None, {})
    if cotangent is not None:
        attributes["known"] = cotangent in b.cotangents
        if attributes["known"]:
            _explain(b, cotangent, node)
    return GradNode(
        parameter,
        role,
        kind,
        None if x is None else values.name(x),
        None if cotangent is None else values.name(cotangent),
        value.name,
        attributes,
        inner.line if inner.line and kind in ("conv", "dense") else value.line,
        site,
    )


_Found = tuple[str, "int | None", "int | None", dict[str, Any]]


def _operands(b: Backward, value: Value) -> tuple[Trace, Trace, bool] | None:
    """The saved input and the cotangent that a product reads; whether the input is the left one."""
    f, both = b.forward, zip(value.inputs, value.views, strict=True)
    left, right = (trace(b.values, index, view, f.known.atoms) for index, view in both)
    if right.base in b.cotangents or left.base in f.inside:
        return left, right, True
    if left.base in b.cotangents or right.base in f.inside:
        return right, left, False
    return None


def _weight_convolution(
    whole: Trace, value: Value, sides: tuple[Trace, Trace, bool], roles: ConvRoles | None
) -> _Found:
    x, y, x_first = sides
    attributes: dict[str, Any] = {
        "element": value.steps[0].operation.result_types[0].element,
        "groups": value.attributes["feature_group_count"],
        "batch_groups": value.attributes["batch_group_count"],
        "kernel": (),
    }
    if roles is None:
        return "conv", x.base, y.base, attributes
    # In a one-pixel or one-channel layer, what is moved may be seen as a reshape.
    x, y = read_at(x, roles.x_view), read_at(y, roles.y_view)
    ours, theirs = (LEFT, RIGHT) if x_first else (RIGHT, LEFT)
    out = value.attributes["dim_numbers"][RESULT]
    spatial = range(len(value.view) - 2)
    places = {a.dim: d for d, a in enumerate(whole.axes) if a.dim is not None}
    layout: list[Any] = [None] * len(whole.axes)
    # Place `t` of the weight's gradient is place `scale · (t - offset)` of the product.
    taken = {a.dim: (a.scale, -a.scale * a.offset) for a in whole.axes}
    read = [taken.get(out.index(k), (1, 0)) for k in spatial]
    operands = (x, y) if x_first else (y, x)
    back = Gradient(value, roles, ours, theirs, RESULT, operands, read)
    axes: dict[Any, Solved] = {}
    kernel: dict[Any, int] = {}
    straight = True
    for k in spatial:
        which = back.role(ours, k)
        axes[which], kernel[which] = back.solved(k), back.taps(k)
        straight &= agree(which, back.role(theirs, k))
        if out.index(k) in places:
            layout[places[out.index(k)]] = which
    for side, letter, of_result in ((LEFT, "b", "b"), (RIGHT, "o", "f")):
        role = back.role(side, letter)
        if out.index(of_result) in places:
            features = "i" if side == ours else "o"
            layout[places[out.index(of_result)]] = features if role == "f" else role
    attributes |= {
        **geometry(axes, kernel, sorted(axes, key=str)),
        "flipped": any(a.dilation < 0 and kernel[r] > 1 for r, a in axes.items()),
        "layout": tuple(layout),
        "layout_fits": fits(tuple(layout), roles.w_roles),
        "straight": straight,
        "sums": (back.role(LEFT, "f"), back.role(RIGHT, "i")),
    }
    return "conv", x.base, y.base, attributes


def _weight_dense(whole: Trace, value: Value, sides: tuple[Trace, Trace, bool]) -> _Found:
    (x, y, first), contract = sides, value.attributes["contracting"]
    order = [a.dim for a in whole.axes]
    attributes = {
        "sums": (
            tuple(x.axes[d].dim for d in contract[0 if first else 1]),
            tuple(y.axes[d].dim for d in contract[1 if first else 0]),
        ),
        # The weight is input × output; the product lists its left operand's dimensions first.
        "layout_fits": order == sorted(order, key=str)
        if first
        else order != sorted(order, key=str),
    }
    return "dense", x.base, y.base, attributes


def _summed(b: Backward, node: int) -> _Found | None:
    """A sum of the cotangent, or of the cotangent times the normalised input."""
    f = b.forward
    # A gradient is not a cotangent to stop at, but what it sums is.
    form = terms(f.known, node)
    if len(form) != 1:
        return None
    ((product, scale),) = form.items()
    sums = [a for a in product if a[0] == "S"]
    if len(sums) != 1:
        return None
    inside: tuple[Atom, ...] = sums[0][1]
    plain = [a[1] for a in inside if a[0] == "v"]
    known = [v for v in plain if v in b.cotangents]
    cotangent = known[0] if known else plain[0] if len(plain) == 1 else None
    if cotangent is None:
        return None
    kind = f.formulas.gradient(shape(product, cotangent))
    reading = read(f.known, form, cotangent, (scale,))
    outside = [a for a in product if a[0] not in ("i", "S")]
    attributes: dict[str, Any] = {"axes": tuple(sorted(sums[0][2])), "factor": scale}
    if kind is None or (not reading.saved and (reading.statistics or outside or len(inside) > 1)):
        return None
    if not reading.saved:
        return kind, None, cotangent, attributes
    attributes["exact"] = not outside and len(set(reading.saved)) == 1
    if not reading.deviations:
        return kind, reading.saved[0], cotangent, attributes
    statistics = f.known.statistics
    saved = statistics[reading.deviations[0]]
    over = statistics[reading.statistics[0]] if reading.statistics else None
    attributes["exact"] &= (
        len(reading.deviations) == len(reading.statistics) == 1
        and len([a for a in inside if a[0] != "i"]) == 2
        and over is not None
        and over.x == saved.x
    )
    attributes.update(
        epsilon=over.epsilon if over else None,
        divisor=over.divisor if over else None,
        mean_divisor=saved.mean_divisor,
        statistic_axes=over.axes if over else None,
        statistic_line=over.line if over else None,
        mean_line=saved.mean_line,
    )
    return kind, saved.x, cotangent, attributes


#: Operations a training step has no other use for than its layers and their gradients.
_HEAVY = frozenset({"convolution", "dot_general", "select_and_scatter", "reduce_window", "select"})


def _leftovers(b: Backward) -> None:
    """Uses of a cotangent that nothing recognised accounts for."""
    values = b.values
    tails = {values.ids.get(u.gradient) for u in b.updates.values()}
    for value in values.table:
        if (
            value.kind in _HEAVY
            and value.id not in b.explained
            and value.id not in b.forward.inside
        ):
            b.unmatched.append(Unmatched(value.kind, None, value.name, value.line))
    for g in sorted(b.cotangents):
        if not values.users(g) and g not in values.returned:
            name = values.name(g)
            b.unmatched.append(Unmatched("unused cotangent", name, name, values[g].line))
        for u in values.users(g):
            if u in b.explained or u in b.cotangents or g in tails:
                continue
            if is_sum(values, values[u]) and not values.users(u):
                continue
            b.unmatched.append(
                Unmatched(values[u].kind, values.name(g), values.name(u), values[u].line)
            )
