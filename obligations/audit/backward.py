"""The backward half of an audit: the render's chain, layer by layer, in the artifact.

The chain of every layer is followed from the loss down. A step is looked for at the site it goes
back through, so that one that reads another cotangent is seen as that; what it makes is then what
the next one should read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from obligations.audit.forward import (
    bias_expected,
    biases_off,
    expected_tensors,
    formulas,
    pool_problems,
)
from obligations.audit.match import Matching
from obligations.audit.rows import Ledger, Mismatch, close, difference, text, unless
from obligations.audit.unroll import Key, LayerAt, Place, kernel_size, window
from obligations.description import census
from obligations.ops import Formula, Operation, lookup
from obligations.stablehlo import BackStep, FanIn as Added, GradNode, Pattern, Site
from obligations.statements import FanIn, Step


@dataclass(slots=True)
class Chain:
    """The values of the render's chain in the artifact.

    ``values`` maps a layer and a chain value to a name; ``described`` the other way, in words.
    """

    m: Matching
    out: Ledger
    values: dict[Key, str | None] = field(default_factory=dict)
    described: dict[str, str] = field(default_factory=dict)
    steps: set[int] = field(default_factory=set)
    fan_ins: set[str] = field(default_factory=set)

    def value(self, layer: int, name: str) -> str | None:
        """The artifact's name of a chain value of a layer."""
        key = self.m.unrolled.chain(layer, name)
        if key is None:
            loss = self.m.found.loss
            return None if loss is None else loss.seed
        return self.values.get(key)

    def define(self, layer: LayerAt, name: str, at: str, value: str | None) -> None:
        """Note what a chain value is."""
        self.values[layer.name, name] = value
        if value is not None:
            words = f"{layer.name}'s {name}, the cotangent at {at}"
            self.described.setdefault(value, words)

    def call(self, value: str | None) -> str:
        """A cotangent as a message calls it."""
        if value is None:
            return "a cotangent that was not found"
        known = self.described.get(value)
        if known is None:
            line = self.m.line(value)
            known = f"made at line {line}, no value of the chain" if line else "no cotangent"
        return f"%{value} ({known})"


def backward(m: Matching, out: Ledger) -> None:
    """Every row about the backward half."""
    chain = Chain(m, out)
    for name, units, said in _rows(m):
        out.row(name, units, said)
    if m.found.loss is not None:
        chain.described[m.found.loss.seed] = "the cotangent at the logits"
        by_site: dict[int, list[BackStep]] = {}
        for step in m.found.steps:
            by_site.setdefault(-1 if step.site is None else step.site, []).append(step)
        for index in range(len(m.unrolled.layers) - 1, -1, -1):
            _layer(chain, index, by_site)
    _gradients(chain)
    _census(chain)
    _beyond(chain)


def _rows(m: Matching) -> Iterator[tuple[str, str, str]]:
    """The rows in the order in which they are printed; those of formulas by the operations met."""
    yield "backward steps", "steps", "the cotangent each reads"
    yield "masks", "steps", "open between the kinks"
    yield "saved values", "steps", "which each step reads"
    yield "weights of steps", "steps", "which each step goes back through"
    for place, own, _ in formulas(m):
        count = len(Pattern.of(place.site.operation, own.step).form)
        along = "·".join(own.over)
        over = f", 1/({along})" if len(own.over) > 1 else f", 1/{along}" * bool(along)
        yield (
            backward_row(place.site.operation),
            "steps",
            _COUNTED.get(count, f"{count} terms") + over,
        )
    yield "input gradients", "steps", "phase, stride, kernel, flip"
    yield "pool backward", "steps", "the window's maximum"
    yield "average backward", "steps", "divisor h·w"
    yield "fan-in", "sums", "what each adds"
    yield "fan-in order", "sums", "operands as in the render"
    yield "cotangents", "tensors", "which each gradient reads"
    yield "gradient nodes", "tensors", "kind and geometry"
    yield "saved inputs", "tensors", "which each gradient reads"
    yield "census", "tensors", "a gradient each"
    yield "nothing else", "uses", "of a cotangent"


#: How many terms a step has, in words.
_COUNTED = {1: "one term", 2: "two terms", 3: "three terms", 4: "four terms"}


def backward_row(operation: Operation) -> str:
    """What the convention is called that an operation's step is held in."""
    return f"{operation.noun or operation.word} backward"


def _layer(chain: Chain, index: int, by_site: Mapping[int, list[BackStep]]) -> None:
    layer = chain.m.unrolled.layers[index]
    for node in layer.emitted.nodes.values():
        if isinstance(node, Step):
            _step(chain, index, node, by_site)
        else:
            _fan_in(chain, index, node, by_site)


def _step(chain: Chain, index: int, node: Step, by_site: Mapping[int, list[BackStep]]) -> None:
    m, layer = chain.m, chain.m.unrolled.layers[index]
    place = m.unrolled.places[layer.key(node.site)]
    site = m.sites.get(layer.key(node.site))
    where = f"{layer.name}.{node.name}"
    steps = chain.out.row("backward steps")
    incoming = chain.value(index, node.incoming)
    found = _choose(chain, index, node, place, incoming, by_site)
    if found is None:
        # What is read where the value should be, or the line of what it is made of.
        read = _consumers(chain, index, node.name, by_site)
        line = read[0][1] if read else m.line(incoming) or m.function.line
        expected = f"one from {chain.call(incoming)}"
        if incoming is None:
            steps.unknown(where)
        else:
            have = f"no step back through {place.label}"
            steps.count(where, [Mismatch(line, where, have, expected)])
        chain.define(layer, node.name, node.at, read[0][0] if read else None)
        return
    chain.steps.add(id(found))
    problems = []
    if incoming is not None and found.incoming != incoming:
        first = found.attributes["from_line"]
        line = min(m.reading(found.incoming, first, found.line), default=first)
        problems.append(
            Mismatch(line, where, f"reads {chain.call(found.incoming)}", chain.call(incoming))
        )
    steps.count(where, problems)
    chain.define(layer, node.name, f"{layer.name}.{node.at}", found.value)
    if site is None:
        return
    _saved(chain, layer, node, place, site, found, where)
    own = node.operation.artifact
    held = _formula if isinstance(own, Formula) else _DETAILS.get(place.family)
    if held is not None:
        held(chain, node.operation, place, site, found, where)


def _choose(
    chain: Chain,
    index: int,
    node: Step,
    place: Place,
    incoming: str | None,
    by_site: Mapping[int, list[BackStep]],
) -> BackStep | None:
    """The step of a chain's node: at its site from its cotangent, or one of the two at least.

    One of its kind from its cotangent that goes back through another site is taken when nothing
    in the chain expects it there.
    """
    m, layer = chain.m, chain.m.unrolled.layers[index]
    key = layer.key(node.site)
    site = m.sites.get(key)
    options = [] if site is None else by_site.get(site.index, [])
    exact = next((s for s in options if s.incoming == incoming), None)
    if exact is not None or incoming is None:
        return exact or (options[0] if options else None)
    read = m.unrolled.chain(index, node.incoming)
    due = {
        layer.key(other.site)
        for other in layer.emitted.nodes.values()
        if isinstance(other, Step) and m.unrolled.chain(index, other.incoming) == read
    }
    for s in m.found.steps:
        free = id(s) not in chain.steps and s.incoming == incoming and s.kind == place.called
        if free and (s.site is None or m.claimed.get(s.site) not in due):
            return s
    return options[0] if options else None


def _saved(
    chain: Chain,
    layer: LayerAt,
    node: Step,
    place: Place,
    site: Site,
    found: BackStep,
    where: str,
) -> None:
    m = chain.m
    for saved in node.saved.values():
        due = m.value(layer.key(saved))
        have = {*found.attributes.get("saved_in", ()), str(found.saved)}
        wrong = sorted(h for h in have if h != due)
        row = chain.out.row("saved values")
        said = f"{layer.name}.{saved} (%{due})"
        line = _own_line(m, found)
        called = ", ".join(_forward_name(m, w) for w in wrong)
        row.count(where, unless(not wrong or due is None, line, where, f"reads {called}", said))
    for weight in node.weights.values():
        parameter = layer.forward.parameters[weight]
        owner = m.unrolled.places[layer.key(parameter.site)]
        names_of = [n for n, p in owner.tensors.items() if p.render == weight]
        line = found.line
        if found.weight not in (None, names_of[0]):
            line = max(m.reading(str(found.weight), m.line(found.incoming), line), default=line)
        chain.out.row("weights of steps").check(
            line, where, f"%{found.weight}", f"%{names_of[0]}", "reads"
        )


def _own_line(m: Matching, found: BackStep | GradNode) -> int:
    """Where the saved value is read: at the difference from the mean, if that is no forward's."""
    mean: int = found.attributes.get("mean_line") or 0
    assert m.found.loss is not None
    return mean if mean > m.found.loss.line else found.line


def _forward_name(m: Matching, value: str) -> str:
    for key in m.unrolled.places:
        if m.value(key) == value:
            return f"{key[0]}.{key[1]} (%{value})"
    return f"%{value}"


def _tests(tests: tuple[tuple[str, float], ...]) -> str:
    signs = {"GT": ">", "LT": "<", "GE": "≥", "LE": "≤", "EQ": "=", "NE": "≠"}
    return " and ".join(f"it is {signs[relation]} {n:g}" for relation, n in tests) or "always"


def _formula(
    chain: Chain, operation: Operation, place: Place, site: Site, found: BackStep, where: str
) -> None:
    own, a, line = operation.artifact, found.attributes, found.line
    assert isinstance(own, Formula)
    pattern = Pattern.of(operation, own.step, place.axes)
    due, have = pattern.numbers, a["coefficients"]
    said = f"coefficients {text(have)} (from line {a['from_line']})"
    problems = unless(close(have, due), line, where, said, text(due))
    tests = _tests(a["tests"]), _tests(pattern.tests)
    if len(pattern.form) == 1 and pattern.tests:
        chain.out.row("masks").count(
            where, [*difference(line, where, *tests, "kept where"), *problems]
        )
        return
    # The forward's statistics are held against the description in their own row.
    statistics = _of_statistics(a, site.attributes, where) if own.over else []
    chain.out.row(backward_row(operation)).count(
        where,
        [
            *problems,
            *difference(line, where, *tests, "kept where"),
            *unless(a["exact"], line, where, "the terms are others", own.written),
            *statistics,
        ],
    )


def _of_statistics(
    a: Mapping[str, Any], own: Mapping[str, Any], where: str, line: int = 0
) -> list[Mismatch]:
    """What the statistics that a step or a gradient reads have otherwise than the forward's."""
    out = []
    for name, what in _STATISTICS.items():
        at = a["mean_line" if name == "mean_divisor" else "statistic_line"] or line
        out += difference(at, where, a[name], own.get(name), what)
    return out


def _geometry(
    operation: Operation, place: Place, found: BackStep | GradNode, where: str
) -> list[Mismatch]:
    """How the convolution a gradient is of stands to the place's: its windows and its kernel."""
    a, line, size = found.attributes, found.line, kernel_size(place)
    due = tuple(window(operation, k) for k in size)
    met = "of a convolution whose first kernel centre meets row"
    return [
        *difference(line, where, a["phase"], tuple(d.first for d in due), met),
        *difference(line, where, a["stride"], tuple(d.step for d in due), "stride"),
        *difference(line, where, a["dilation"], (1, 1), "dilation"),
        *difference(line, where, a["kernel"], size, "kernel"),
    ]


def _convolution(
    chain: Chain, operation: Operation, place: Place, site: Site, found: BackStep, where: str
) -> None:
    a, line = found.attributes, found.line
    groups = 1 if "ic" in place.axes else place.axes["c"]
    contracts = groups > 1 or a["contracts"] in ("o", None)
    chain.out.row("input gradients").count(
        where,
        [
            *_geometry(operation, place, found, where),
            *unless(a["flipped"], line, where, "the kernel is not reversed", "reversed"),
            *unless(a["layout"], line, where, "the result is laid out otherwise", "the input's"),
            *unless(a["straight"], line, where, "rows of the kernel meet columns", "rows"),
            *difference(line, where, a["groups"], groups, "feature groups"),
            *unless(contracts, line, where, "sums over the input's channels", "the output's"),
        ],
    )


def _maxpool(
    chain: Chain, operation: Operation, place: Place, site: Site, found: BackStep, where: str
) -> None:
    a = found.attributes
    rule = f"{a['select']}, {a['scatter']}"
    chain.out.row("pool backward").count(
        where,
        [
            *pool_problems(place, found.line, where, a),
            *difference(found.line, where, rule, "compare GE, add", "the rule is"),
        ],
    )


def _average(
    chain: Chain, operation: Operation, place: Place, site: Site, found: BackStep, where: str
) -> None:
    n = float(place.axes["h"] * place.axes["w"])
    chain.out.row("average backward").check(
        found.line, where, found.attributes["divisor"], n, "divisor"
    )


def _dense(
    chain: Chain, operation: Operation, place: Place, site: Site, found: BackStep, where: str
) -> None:
    chain.out.row("input gradients").check(
        found.line, where, found.attributes["contracts"], (1,), "sums over the weight's dimension"
    )


def _dropout(
    chain: Chain, operation: Operation, place: Place, site: Site, found: BackStep, where: str
) -> None:
    chain.out.row("weights of steps").check(
        found.line, where, f"%{found.weight}", f"%{site.params[0]}", "goes through"
    )


_DETAILS = {
    "convolution": _convolution,
    "window": _maxpool,
    "average": _average,
    "dense": _dense,
    "mask": _dropout,
}


# -- fan-in, and what stands in a missing value's place


def _consumers(
    chain: Chain, index: int, name: str, by_site: Mapping[int, list[BackStep]]
) -> list[tuple[str, int]]:
    """What the artifact reads where the chain reads a value: ``(value, line of the reader)``."""
    m, layers = chain.m, chain.m.unrolled.layers
    out: list[tuple[str, int]] = []
    wanted = m.unrolled.chain(index, name)
    for at in (index, index - 1):
        if at < 0:
            continue
        layer = layers[at]
        for node in layer.emitted.nodes.values():
            if isinstance(node, Step) and m.unrolled.chain(at, node.incoming) == wanted:
                site = m.sites.get(layer.key(node.site))
                if site is not None:
                    out += [(s.incoming, s.line) for s in by_site.get(site.index, [])]
        for read in layer.emitted.reads.values():
            if m.unrolled.chain(at, read.cotangent) == wanted:
                for tensor, place in _owner(chain, layer, read.parameter):
                    node_of = m.found.gradients.get(tensor)
                    if place is not None and node_of is not None and node_of.cotangent:
                        out.append((node_of.cotangent, node_of.line))
    return out


def _owner(chain: Chain, layer: LayerAt, parameter: str) -> list[tuple[str, Place]]:
    p = layer.forward.parameters.get(parameter)
    if p is None:
        return []
    place = chain.m.unrolled.places[layer.key(p.site)]
    return [(n, place) for n, q in place.tensors.items() if q.render == parameter]


def _fan_in(chain: Chain, index: int, node: FanIn, by_site: Mapping[int, list[BackStep]]) -> None:
    m, layer = chain.m, chain.m.unrolled.layers[index]
    where = f"{layer.name}.{node.name}"
    row = chain.out.row("fan-in")
    want = tuple(chain.value(index, o) for o in node.operands)
    added = {f.value: f for f in m.found.fan_ins}
    right = next((f for f in added.values() if sorted((f.a, f.b)) == sorted(map(str, want))), None)
    order = chain.out.row("fan-in order")
    order.judged = False
    if right is not None:
        chain.fan_ins.add(right.value)
        row.count(where, [])
        order.count(where, unless((right.a, right.b) == want, right.line, where, "", ""))
        chain.define(layer, node.name, f"{layer.name}.{node.at}", right.value)
        return
    read = _consumers(chain, index, node.name, by_site)
    due = f"{chain.call(want[0])} and {chain.call(want[1])} added"
    if not read:
        if None in want:
            row.unknown(where)
        else:
            row.count(where, [Mismatch(max(map(m.line, want)), where, "no sum", due)])
        chain.define(layer, node.name, f"{layer.name}.{node.at}", None)
        return
    value, line = read[0]
    other: Added | None = added.get(value)
    if other is None:
        row.count(where, [Mismatch(line, where, f"{chain.call(value)} alone", due)])
    else:
        chain.fan_ins.add(value)
        have = f"{chain.call(other.a)} and {chain.call(other.b)} added"
        row.count(where, [Mismatch(other.line, where, have, due)])
    chain.values[layer.name, node.name] = value
    chain.described.setdefault(value, f"read for {layer.name}'s {node.name}")


# -- gradients


def _gradients(chain: Chain) -> None:
    m = chain.m
    wanted = expected_tensors(m)
    for index, layer in enumerate(m.unrolled.layers):
        for read in layer.emitted.reads.values():
            for tensor, place in _owner(chain, layer, read.parameter):
                if tensor in wanted:
                    due = chain.value(index, read.cotangent)
                    _gradient(chain, layer, tensor, place, due)


def _gradient(chain: Chain, layer: LayerAt, tensor: str, place: Place, due: str | None) -> None:
    m = chain.m
    where = f"{tensor} ({place.label})"
    rows = [chain.out.row(name) for name in ("cotangents", "gradient nodes")]
    found = m.found.gradients.get(tensor)
    if due is None and found is not None and found.kind == "unrecognised":
        for row in rows:
            row.unknown(where)
        return
    if found is None or found.kind in ("missing", "unrecognised"):
        line = m.function.line if found is None else m.gradient_line(tensor) or found.line
        have = "no gradient" if found is None or found.kind == "missing" else "no known gradient"
        for row, expected in zip(rows, (chain.call(due), _kind(place, tensor)), strict=True):
            row.count(where, [Mismatch(line, where, have, expected)])
        return
    same = due is None or found.cotangent == due
    problems = []
    if not same:
        line = m.gradient_line(tensor) or found.line
        have = f"reads {chain.call(found.cotangent)}"
        problems.append(Mismatch(line, where, have, chain.call(due)))
    rows[0].count(where, problems)
    rows[1].count(where, _node(chain, layer, tensor, place, found, where))
    if found.x is not None and place.inputs:
        wanted = m.value(place.inputs[0])
        ok = wanted is None or found.x == wanted
        line = _own_line(m, found)
        have = f"reads {_forward_name(m, found.x)}"
        label = f"{_forward_name(m, str(wanted))}"
        chain.out.row("saved inputs").count(where, unless(ok, line, where, have, label))


def _kind(place: Place, tensor: str) -> str:
    """What the gradient node of a tensor is called."""
    own, of = place.site.operation.artifact, place.tensors[tensor].of
    if isinstance(own, Formula):
        return next((g.kind for g in own.gradients if g.parameter == of.symbol), "")
    return _NODES.get(place.family, "") if of.role == "weight" else "sum"


#: What the gradient node of a weight is called.
_NODES = {"dense": "dense", "convolution": "conv"}


def _node(
    chain: Chain, layer: LayerAt, tensor: str, place: Place, found: GradNode, where: str
) -> list[Mismatch]:
    """What is not right about a gradient node, its cotangent and saved input aside."""
    a, line = found.attributes, found.line
    kind = _kind(place, tensor)
    if found.kind != kind:
        return [Mismatch(line, where, f"the node is a {found.kind}", f"a {kind}")]
    site = chain.m.sites.get((place.layer, place.site.name))
    if kind == "conv":
        return _conv_node(layer, place, found, where)
    if kind == "dense":
        fits = unless(a["layout_fits"], line, where, "the weight's dimensions are swapped", "not")
        return [*fits, *difference(line, where, a["sums"], ((0,), (0,)), "sums over")]
    own = place.tensors[tensor].of.axes
    axes = tuple(d for d, a in enumerate(("N", *place.site.operation.output)) if a not in own)
    out = [
        *difference(line, where, a["axes"], axes, "sums over"),
        *unless(a["factor"] == 1, line, where, f"the sum is scaled by {text(a['factor'])}", "1"),
    ]
    if "exact" in a:
        out += unless(a["exact"], line, where, f"not {_SUMMED}", "one")
    if "statistic_axes" in a and site is not None:
        out += _of_statistics({**a, "axes": a["statistic_axes"]}, site.attributes, where, line)
    return out


_SUMMED = "a sum of dy times the normalised input"


_STATISTICS = {
    "epsilon": "ε is",
    "divisor": "the variance is divided by",
    "mean_divisor": "the mean is divided by",
    "axes": "statistics over",
}


def _conv_node(layer: LayerAt, place: Place, found: GradNode, where: str) -> list[Mismatch]:
    a, line = found.attributes, found.line
    operation = place.site.operation
    # A render may say the family of its strided gradient nodes on its own.
    family = layer.emitted.family
    if family is not None and operation.stride > 1:
        operation = lookup(operation.word, operation.stride, family) or operation
    if "phase" not in a:
        return [Mismatch(line, where, "the weight is of no convolution", "this site's")]
    return [
        *_geometry(operation, place, found, where),
        *unless(not a["flipped"], line, where, "the kernel is reversed", "not"),
        *unless(a["layout_fits"], line, where, "the weight's dimensions are moved", "not"),
        *unless(a["straight"], line, where, "rows of the cotangent meet columns", "rows"),
        *difference(line, where, a["sums"], ("b", "b"), "sums over"),
    ]


def _census(chain: Chain) -> None:
    m = chain.m
    total = census(m.unrolled.net)
    row = chain.out.row("census")
    wanted = expected_tensors(m)
    for tensor, place in wanted.items():
        found = m.found.updates.get(tensor)
        where = f"{tensor} ({place.label})"
        row.count(
            where, unless(found is not None, m.function.line, where, "not updated", "updated")
        )
    off = {n for p in m.unrolled.places.values() if (n := bias_expected(p))} - set(wanted)
    for tensor in m.found.updates:
        if tensor not in wanted:
            line = m.found.updates[tensor].line
            row.extra(line, tensor, "updated" + " (a bias)" * (tensor in off), "not trained")
    row.note = f"{total.total}, with convolution biases {total.with_biases}"
    if biases_off(m.unrolled.net) is None and len(wanted) not in (total.total, total.with_biases):
        row.extra(m.function.line, "census", f"{len(wanted)} tensors", row.note)


def _beyond(chain: Chain) -> None:
    m = chain.m
    row = chain.out.row("nothing else")
    row.total = len(m.found.steps) + len(m.found.fan_ins) + len(m.found.gradients)
    if m.found.loss is None:
        return
    for step in m.found.steps:
        if id(step) not in chain.steps:
            has = f"a {step.kind} step from {chain.call(step.incoming)}"
            row.extra(step.line, f"%{step.value}", has, "no such step")
    for f in m.found.fan_ins:
        if f.value not in chain.fan_ins:
            has = f"{chain.call(f.a)} and {chain.call(f.b)} added"
            row.extra(f.line, f"%{f.value}", has, "no such sum")
    for u in m.found.unmatched:
        has = f"{u.kind} is none of the known operations"
        if u.kind == "unused cotangent":
            has = f"nothing reads {chain.call(u.value)}"
        elif u.incoming is not None:
            has = f"{u.kind} of {chain.call(u.incoming)} is no known step"
        row.extra(u.line, f"%{u.value}", has, "each cotangent read as described")
    kinds = Counter(s.kind for s in m.found.sites if s.family == "convolution")
    row.note = ", ".join(f"{n} {k}" for k, n in kinds.items())
