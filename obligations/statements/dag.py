"""The two backward DAGs of a block, and where they differ.

The **certified** backward is differentiation of the forward description: the cotangent at a site
is the sum, over the sites that read it, of that operation's step applied to the cotangent there.
It looks at no render. The **emitted** backward is the render chain, its incoming cotangents
resolved: an operation belongs to the forward site its weight names, or, without a weight, to
the next weightless operation in reverse forward order; it reads the cotangent at that site's
output, unless the render says another.

Both are networkx graphs with the same nodes: ``("step", site, input)``, ``("sum", site)``,
``("read", parameter)``, ``("handed on",)`` and the incoming cotangent, an edge from each to what
reads it. A step has the attributes ``operation``, ``token``, ``at``, ``shape``, ``saved``,
``weights`` and ``kinks``, a read its node's ``family``. :func:`compare` reports every attribute
and edge that differs, at the render's line and column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, permutations
from typing import TypeVar

import networkx as nx

from obligations.description import (
    Block,
    Call,
    Choice,
    Group,
    Kind,
    Operand,
    Parameter,
    Read,
    Shape,
    Site,
    Statement,
)
from obligations.errors import InputError, Source, Span
from obligations.ops import JOIN_TOKEN, Backward, Operation, by_token

INCOMING = "%dy"
"""The block-output cotangent in a render chain."""

_A = TypeVar("_A")
_B = TypeVar("_B")

Key = tuple[str, ...]
"""A node of a backward graph."""

START: Key = (INCOMING,)
HANDED: Key = ("handed on",)


@dataclass(frozen=True, slots=True)
class Forward:
    """A block's forward under one kind, as a graph.

    Attributes
    ----------
    sites
        The sites by name, in forward order; what they read is a site or the input, no alias.
    aliases
        Other names of sites.
    groups
        Sites with one step back, by the group's name.
    parameters
        Those that a render names, by that name.
    graph
        A multigraph of the input and the sites, with the attributes ``operation`` and ``shape``;
        an edge from each to what reads it, keyed by its place there, with the input's ``symbol``.
    """

    block: Block
    kind: Kind
    sites: Mapping[str, Site]
    aliases: Mapping[str, str]
    groups: Mapping[str, Group]
    parameters: Mapping[str, Parameter]
    graph: nx.MultiDiGraph = field(compare=False, repr=False)

    def real(self, name: str) -> str:
        """The site that ``name`` stands for, where it only names another one."""
        return self.aliases.get(name, name)

    @property
    def output(self) -> str:
        """The site whose cotangent is the incoming one."""
        return self.real(self.block.output)

    def shape(self, name: str) -> Shape:
        """The shape of a site's value, or of the input's."""
        found: Shape = self.graph.nodes[self.real(name)]["shape"]
        return found

    def consumers(self, name: str) -> tuple[tuple[Site, str], ...]:
        """Who reads a value, in forward order: the site, and its input's symbol."""
        found = self.graph.out_edges(name, keys=True, data="symbol")
        ordered = sorted(found, key=lambda e: (self.graph.nodes[e[1]]["place"], e[2]))
        return tuple((self.sites[at], symbol) for _, at, _, symbol in ordered)

    def readers(self, name: str) -> tuple[str, ...]:
        """The sites that read a value, in forward order; one that reads it twice, twice."""
        return tuple(site.name for site, _ in self.consumers(name))

    def before(self, name: str) -> set[str]:
        """A site and all that it depends on, the input included."""
        found: set[str] = nx.ancestors(self.graph, name) | {name}
        return found

    def trained(self) -> tuple[Parameter, ...]:
        """The parameters that have a gradient, in forward order of their sites."""
        return tuple(p for s in self.sites.values() for p in s.parameters if p.trained)

    def layer(self, name: str) -> Site:
        """The site, or the group as a site, that a step goes back through."""
        return self.groups[name].whole if name in self.groups else self.sites[name]


def forward(block: Block, kind: Kind) -> Forward:
    """The forward of ``block`` under ``kind``."""
    aliases: dict[str, str] = {}
    for alias in block.aliases[kind.name]:
        aliases[alias.name] = aliases.get(alias.of, alias.of)

    def real(site: Site) -> Site:
        return replace(site, inputs=tuple(aliases.get(i, i) for i in site.inputs))

    sites = {s.name: real(s) for s in block.sites[kind.name]}
    groups = {g.name: replace(g, whole=real(g.whole)) for g in block.groups[kind.name]}
    graph = nx.MultiDiGraph()
    graph.add_node(block.input, operation=None, shape=block.input_shape)
    for place, site in enumerate(sites.values()):
        graph.add_node(site.name, operation=site.operation.key, shape=site.shape, place=place)
        for operand, (symbol, name) in enumerate(site.operands()):
            graph.add_edge(name, site.name, operand, symbol=symbol)
    parameters = {p.render: p for s in sites.values() for p in s.parameters if p.render}
    return Forward(block, kind, sites, aliases, groups, parameters, graph)


# -- certified ---------------------------------------------------------------------------------


class Certified:
    """Differentiation of the forward: the chain rule over its graph, no render involved.

    Attributes
    ----------
    graph
        What the parameters' gradients and the block's input cotangent are made of, see the
        module's text.
    reads
        The site whose cotangent each trained parameter's gradient reads, by its render name.
    """

    def __init__(self, fwd: Forward) -> None:
        self.fwd = fwd
        self.reads = {p.render: p.site for p in fwd.trained()}
        self._inside = {m: g for g, group in fwd.groups.items() for m in group.sites}
        graph = nx.MultiDiGraph()
        graph.add_node(START, at=fwd.output, shape=fwd.shape(fwd.output))
        for name in (fwd.block.input, *fwd.sites):
            parts = self.parts(name)
            for part in parts:
                if part[0] == "step":
                    site = fwd.layer(part[1])
                    graph.add_node(part, **_step(site, part[2], name, fwd))
                    _connect(graph, self.at(site.name), part)
            if len(parts) > 1:
                graph.add_node(("sum", name), at=name, shape=fwd.shape(name))
                for place, part in enumerate(parts):
                    graph.add_edge(part, ("sum", name), place)
        for p in fwd.trained():
            graph.add_node(("read", p.render), family=fwd.sites[p.site].operation.padding)
            _connect(graph, self.at(p.site), ("read", p.render))
        if fwd.block.hands_on:
            _connect(graph, self.at(fwd.block.input), HANDED)
        ends = [n for n in graph if n[0] in ("read", HANDED[0])]
        wanted = {START, *ends}.union(*(nx.ancestors(graph, n) for n in ends))
        self.graph: nx.MultiDiGraph = graph.subgraph(wanted).copy()

    def parts(self, name: str) -> tuple[Key, ...]:
        """What adds up to the cotangent at a site or the input, in forward order of the readers."""
        found: list[Key] = []
        for site, symbol in self.fwd.consumers(name):
            group = self._inside.get(site.name)
            if group is not None and self._inside.get(name) != group:
                whole = self.fwd.groups[group].whole
                key: Key | None = ("step", group, next(s for s, n in whole.operands() if n == name))
                if key in found:
                    continue
            elif site.operation.is_sum:
                key = self.at(site.name)
            else:
                key = ("step", site.name, symbol)
            if key is not None:
                found.append(key)
        return tuple(found)

    def at(self, name: str) -> Key | None:
        """The node that is the cotangent at a site; ``None`` where no reader leads on."""
        if name == self.fwd.output:
            return START
        parts = self.parts(name)
        return ("sum", name) if len(parts) > 1 else parts[0] if parts else None


def _connect(graph: nx.MultiDiGraph, source: Key | None, target: Key) -> None:
    if source is not None:
        graph.add_edge(source, target, 0)


def _step(site: Site, symbol: str, at: str, fwd: Forward) -> dict[str, object]:
    """The attributes of a site's step to the input ``symbol``, which reads ``at``."""
    operation = site.operation
    step = operation.step(symbol)
    own = {p.symbol: p.render for p in site.parameters}
    read = dict(site.operands())
    return {
        "operation": operation.key,
        "token": step.token,
        "at": at,
        "shape": fwd.shape(at),
        "saved": {o: read[o] for o in step.operands if operation.reads(o) == "input"},
        "weights": {o: own[o] for o in step.operands if o in own},
        "kinks": operation.kinks,
    }


def certify(fwd: Forward) -> Certified:
    """Differentiate the forward description."""
    return Certified(fwd)


# -- emitted -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """A resolved operation of the chain.

    Attributes
    ----------
    name
        The chain value it defines (``%dn2``).
    token
        As written.
    operation, step
        The table's entry for the token (among several, the one of the site where it fits).
    site
        The forward site, or the group of sites, whose operation this reverses.
    incoming
        The chain value it reads, or ``%dy``.
    saved, weights
        The saved activations and the weights it names, sites and render names by symbol.
    at
        The site whose cotangent (or one contribution to it) this is: what ``site`` reads.
    """

    name: str
    token: str
    operation: Operation
    step: Backward
    site: str
    incoming: str
    saved: Mapping[str, str]
    weights: Mapping[str, str]
    at: str
    span: Span

    @property
    def key(self) -> Key:
        """Its node in a backward graph."""
        return ("step", self.site, self.step.input)


@dataclass(frozen=True, slots=True)
class FanIn:
    """``addVB(a, b)``; ``operands`` in the order written."""

    name: str
    operands: tuple[str, ...]
    at: str
    span: Span

    @property
    def key(self) -> Key:
        """Its node in a backward graph."""
        return ("sum", self.at)


@dataclass(frozen=True, slots=True)
class Emitted:
    """A render chain, resolved.

    ``nodes`` are in textual order; ``reads`` say which chain value each parameter's gradient node
    reads, by parameter; ``output`` is the block-input cotangent, ``None`` where the
    render stops before it (a stem). ``family`` is what the render says of its strided gradient
    nodes.
    """

    nodes: Mapping[str, Step | FanIn]
    output: str | None
    reads: Mapping[str, Read]
    family: str | None
    span: Span

    def at(self, name: str, fwd: Forward) -> str:
        """The site that the chain value ``name`` is the cotangent of."""
        return fwd.output if name == INCOMING else self.nodes[name].at

    def keys(self) -> dict[str, Key]:
        """The node of each chain value in a backward graph.

        Two values may be one step or one sum: the first step is the node, and the last sum. The
        others are nodes that no certified graph has.
        """
        owners: dict[Key, str] = {}
        for node in self.nodes.values():
            if isinstance(node, FanIn) or node.key not in owners:
                owners[node.key] = node.name
        own = {
            n.name: n.key if owners[n.key] == n.name else (*n.key, n.name)
            for n in self.nodes.values()
        }
        return {INCOMING: START, **own}

    @property
    def values(self) -> nx.DiGraph:
        """Chain values, an edge from each to the ones that read it."""
        graph = nx.DiGraph()
        graph.add_node(INCOMING)
        for node in self.nodes.values():
            graph.add_node(node.name)
            graph.add_edges_from((source, node.name) for source in sources_of(node))
        return graph

    def graph(self, fwd: Forward) -> nx.MultiDiGraph:
        """The chain as a backward graph, to be held against :attr:`Certified.graph`."""
        keys = self.keys()
        graph = nx.MultiDiGraph()
        graph.add_node(START, at=fwd.output, shape=fwd.shape(fwd.output))
        for node in self.nodes.values():
            if isinstance(node, FanIn):
                graph.add_node(keys[node.name], at=node.at, shape=fwd.shape(node.at))
            else:
                graph.add_node(
                    keys[node.name],
                    operation=node.operation.key,
                    token=node.token,
                    at=node.at,
                    shape=fwd.shape(node.at),
                    saved={s: fwd.real(n) for s, n in node.saved.items()},
                    weights=dict(node.weights),
                    kinks=node.operation.kinks,
                )
            for place, source in enumerate(sources_of(node)):
                graph.add_edge(keys[source], keys[node.name], place)
        for read in self.reads.values():
            owner = fwd.parameters.get(read.parameter)
            strided = owner is not None and fwd.sites[owner.site].operation.padding is not None
            graph.add_node(("read", read.parameter), family=self.family if strided else None)
            _connect(graph, keys[read.cotangent], ("read", read.parameter))
        if self.output is not None:
            _connect(graph, keys[self.output], HANDED)
        return graph


def sources_of(node: Step | FanIn) -> tuple[str, ...]:
    """The chain values ``node`` reads."""
    return (node.incoming,) if isinstance(node, Step) else node.operands


def unrolled(emitted: Emitted, name: str) -> tuple[object, ...]:
    """A chain value as what it is made of: its operation and operands, down to the incoming."""
    made: dict[str, tuple[object, ...]] = {INCOMING: (INCOMING,)}
    graph = emitted.values
    for at in nx.topological_sort(graph.subgraph(nx.ancestors(graph, name) | {name})):
        node = emitted.nodes.get(at)
        if node is None:
            continue
        operands = tuple(made[source] for source in sources_of(node))
        if isinstance(node, Step):
            named = (*node.saved.values(), *node.weights.values())
            made[at] = (node.token, node.site, named, *operands)
        else:
            made[at] = ("+", *operands)
    return made[name]


def chosen(value: Call | Choice | Operand, flags: Mapping[str, bool]) -> Call | Operand:
    """What a statement's value is under ``flags``."""
    while isinstance(value, Choice):
        value = value.then if flags.get(value.flag, False) else value.otherwise
    return value


_Place = tuple[str, str]
"""A site or group, and the symbol of the input whose cotangent a step gives."""


@dataclass(slots=True)
class _Resolver:
    """Finds each call's forward site and incoming cotangent."""

    fwd: Forward
    source: Source
    calls: Mapping[str, tuple[Statement, Call]]
    alias: Mapping[str, str]
    certified: Certified
    places: dict[str, _Place] = field(default_factory=dict)
    joins: dict[str, tuple[str, ...]] = field(default_factory=dict)
    found: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> str:
        return self.alias.get(name, name)

    def place(self) -> None:
        """The site of each operation: that of its weight, or the next without one."""
        table = by_token()
        weightless: list[str] = []
        for name, (_, call) in self.calls.items():
            if call.token == JOIN_TOKEN:
                self.joins[name] = tuple(self.named(o.text) for o in call.operands)
                continue
            weights = _written(*table[call.token][0], call)[1]
            if not weights:
                weightless.append(name)
                continue
            site = self.fwd.parameters[next(iter(weights.values()))].site
            self.places[name] = self._of_weight(site, call)
        groups = ((name, group.whole) for name, group in self.fwd.groups.items())
        free = [
            (at, step)
            for at, site in [*reversed(tuple(self.fwd.sites.items())), *groups]
            for step in site.operation.backward or _unrendered(site)
            if not any(site.operation.reads(o) == "parameter" for o in step.operands)
        ]
        self.places |= _align(weightless, free, self.calls, self.fwd)
        for name in weightless:
            if name not in self.places:
                _, call = self.calls[name]
                raise InputError(
                    self.source,
                    call.span,
                    f"{name} = {call.token} reverses no operation of the forward: "
                    f"its operations without a weight are taken in order and run out here",
                )

    def _of_weight(self, site: str, call: Call) -> _Place:
        """The step of a site, or of the group it is in, that has the call's token."""
        groups = (g for g, group in self.fwd.groups.items() if site in group.sites)
        taken = set(self.places.values())
        for at in (site, *groups):
            for step in self.fwd.layer(at).operation.backward:
                if step.token == call.token and (at, step.input) not in taken:
                    return at, step.input
        return site, self.fwd.sites[site].operation.inputs[0].symbol

    def joined(self) -> dict[str, str]:
        """The site of each fan-in: where most of what it adds arrives."""
        keys = self._steps()
        out: dict[str, str] = {}
        names = reversed([self.fwd.block.input, *self.fwd.sites])
        sites = [name for name in names if len(self.certified.parts(name)) > 1]

        def shared(join: str, site: str) -> int:
            named = (self._name(part, keys) for part in self.certified.parts(site))
            arriving = Counter(name for name in named if name is not None)
            return (Counter(self.joins[join]) & arriving).total()

        for place, site in enumerate(sites):
            rest = [j for j in self.joins if j not in out]
            best = max(rest, key=partial(shared, site=site), default=None)
            if best is None:
                break
            # More of it may arrive at a site that is yet to come.
            most = max((shared(best, other) for other in sites[place + 1 :]), default=0)
            if shared(best, site) >= max(most, 1):
                out[best] = site
                self.found[site] = best
        return out

    def _steps(self) -> dict[Key, str]:
        """The chain value of each step: the first, where two are one step."""
        found: dict[Key, str] = {}
        for name in self.calls:
            if name in self.places:
                found.setdefault(("step", *self.places[name]), name)
        return found

    def _name(self, part: Key, keys: Mapping[Key, str]) -> str | None:
        if part[0] == "sum":
            return self.found.get(part[1])
        return INCOMING if part == START else keys.get(part)

    def cotangent(self, site: str, span: Span) -> str:
        """The chain value at ``site``, or an error at ``span`` when the chain has none."""
        if site == self.fwd.output:
            return INCOMING
        if site in self.found:
            return self.found[site]
        keys = self._steps()
        for part in self.certified.parts(site):
            name = self._name(part, keys)
            if name is None and part[0] == "sum":
                name = self.cotangent(part[1], span)
            if name is not None:
                return name
        raise InputError(
            self.source, span, f"the chain has no cotangent at {site}, which this operation reads"
        )


def _unrendered(site: Site) -> tuple[Backward, ...]:
    """The steps of an operation that no render emits: they take their place all the same."""
    operation = site.operation
    return () if operation.is_sum else tuple(operation.step(i.symbol) for i in operation.inputs)


def resolve(fwd: Forward, flags: Mapping[str, bool], source: Source) -> Emitted:
    """Find each operation's forward site and incoming cotangent (see the module's text).

    ``flags`` decide the chain's ``if``\\ s: the kind's flags and the net's options.

    Raises
    ------
    InputError
        When a step cannot be given a site: it names a weight no site has, or there are more
        weightless steps than weightless operations.
    """
    chain = fwd.block.chain
    alias: dict[str, str] = {INCOMING: INCOMING}
    calls: dict[str, tuple[Statement, Call]] = {}
    for statement in chain.statements:
        value = chosen(statement.value, flags)
        if isinstance(value, Operand):
            alias[statement.name] = alias.get(value.text, value.text)
        else:
            calls[statement.name] = (statement, value)
    resolver = _Resolver(fwd, source, calls, alias, Certified(fwd))
    resolver.place()
    joined = resolver.joined()
    named = resolver.named
    table = by_token()
    nodes: dict[str, Step | FanIn] = {}
    for name, (at, symbol) in resolver.places.items():
        statement, call = calls[name]
        site = fwd.layer(at)
        operation, step = _entry(table[call.token], site, symbol)
        saved, weights = _written(operation, step, call)
        incoming = (
            resolver.cotangent(site.name, call.span)
            if call.from_ is None
            else named(call.from_.text)
        )
        reads = site.reads(symbol)
        if step.input != symbol:
            step = replace(step, input=symbol)
        nodes[name] = Step(
            name, call.token, operation, step, at, incoming, saved, weights, reads, statement.span
        )
    for name, operands in resolver.joins.items():
        statement, call = calls[name]
        first = (nodes[o].at for o in operands if isinstance(nodes.get(o), Step))
        place = joined.get(name) or next(first, fwd.block.input)
        nodes[name] = FanIn(name, operands, place, statement.span)
    ordered = {s.name: nodes[s.name] for s in chain.statements if s.name in nodes}
    _in_order(ordered, fwd, source)
    last = named(chain.statements[-1].name) if chain.statements else INCOMING
    output = last if last in ordered and ordered[last].at == fwd.block.input else None
    read = {r.parameter: replace(r, cotangent=named(r.cotangent)) for r in chain.reads}
    return Emitted(ordered, output, read, chain.family, chain.span)


def _in_order(nodes: Mapping[str, Step | FanIn], fwd: Forward, source: Source) -> None:
    """Refuse a chain in which a value is read before it is there."""
    there = {INCOMING}
    for node in nodes.values():
        for name in sources_of(node):
            if name in nodes and name not in there:
                raise InputError(
                    source,
                    node.span,
                    f"{node.name} reads {name} (the cotangent at {nodes[name].at}), "
                    f"which comes after it",
                )
        there.add(node.name)


def _entry(
    candidates: tuple[tuple[Operation, Backward], ...], site: Site, symbol: str
) -> tuple[Operation, Backward]:
    """Among the table's entries for a token, that of the site's operation, else the first."""
    own = [(op, step) for op, step in candidates if op is site.operation]
    return next(((op, step) for op, step in own if step.input == symbol), (own or candidates)[0])


def _written(
    operation: Operation, step: Backward, call: Call
) -> tuple[dict[str, str], dict[str, str]]:
    """The saved activations and the weights a call names, by symbol."""
    written = {s: o.text for s, o in zip(step.operands, call.operands, strict=False)}
    saved = {s: text for s, text in written.items() if operation.reads(s) == "input"}
    return saved, {s: text for s, text in written.items() if operation.reads(s) == "parameter"}


def _align(
    steps: list[str],
    free: list[tuple[str, Backward]],
    calls: Mapping[str, tuple[Statement, Call]],
    fwd: Forward,
) -> dict[str, _Place]:
    """Weightless steps to weightless operations, in order; where some are left out, by token.

    With as many steps as operations the order alone decides, so that a wrong token is a
    difference to report; the steps of one site stand in any order. With fewer, a longest common
    subsequence of tokens finds the gap.
    """

    def likeness(name: str, place: tuple[str, Backward]) -> int:
        at, step = place
        call = calls[name][1]
        if call.token != step.token:
            return 0
        # Prefer the site whose saved value the step names.
        operands = [o.text for o in call.operands]
        return 2 + (bool(operands) and operands[0] in fwd.layer(at).inputs)

    if len(steps) == len(free):
        out: dict[str, _Place] = {}
        left = list(steps)
        for _, run in groupby(free, key=lambda f: f[0]):
            own = list(run)
            taken, left = left[: len(own)], left[len(own) :]
            order = (
                max(permutations(own), key=lambda o: sum(map(likeness, taken, o)))
                if len(own) <= 4
                else tuple(own)
            )
            out |= {n: (at, step.input) for n, (at, step) in zip(taken, order, strict=True)}
        return out
    pairs = common(steps, free, likeness)
    return {n: (at, step.input) for n, (at, step) in pairs}


def common(
    left: list[_A], right: list[_B], likeness: Callable[[_A, _B], int]
) -> list[tuple[_A, _B]]:
    """The common subsequence of two lists whose pairs are the most alike in sum."""
    rows, columns = len(left), len(right)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            weight = likeness(left[i], right[j])
            best[i][j] = max(best[i + 1][j], best[i][j + 1], weight and weight + best[i + 1][j + 1])
    out: list[tuple[_A, _B]] = []
    i = j = 0
    while i < rows and j < columns:
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            out.append((left[i], right[j]))
            i, j = i + 1, j + 1
    return out


# -- comparison --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where the render does not do what the forward implies.

    A picture marks it at ``subject``: a chain value, a parameter, or the site at which the chain
    lacks a cotangent (empty: nothing in particular). ``wrong`` are what the subject reads
    and should not, ``remedy`` says in few words what the forward makes it.
    """

    span: Span
    message: str
    subject: str = ""
    wrong: tuple[str, ...] = ()
    remedy: str = ""

    def render(self, source: Source) -> str:
        """As an error is shown: place, message, line and caret."""
        return InputError(source, self.span, self.message).render().replace(": error: ", ": ", 1)


def compare(fwd: Forward, certified: Certified, emitted: Emitted) -> list[Difference]:
    """Every difference between the emitted and the certified backward, in the render's order."""
    found = _Comparison(fwd, certified, emitted)
    out: list[Difference] = []
    for node in emitted.nodes.values():
        out += found.step(node) if isinstance(node, Step) else found.fan_in(node)
    out += found.missing()
    for parameter in certified.reads:
        out += found.read(parameter)
    return sorted(out, key=lambda d: (d.span.line, d.span.column))


class _Comparison:
    """The two backward graphs side by side, the chain's values called by their names."""

    def __init__(self, fwd: Forward, certified: Certified, emitted: Emitted) -> None:
        self.fwd = fwd
        self.certified = certified
        self.emitted = emitted
        self.due = certified.graph
        self.have = emitted.graph(fwd)
        self.keys = emitted.keys()
        self.names = {key: name for name, key in self.keys.items()}

    def at(self, site: str) -> str | None:
        """The chain value that should be the cotangent at a site, if the chain has it."""
        key = self.certified.at(site)
        return None if key is None else self.names.get(key)

    def describe(self, name: str) -> str:
        if name == INCOMING:
            return f"{name} (the incoming cotangent, at {self.fwd.output})"
        node = self.emitted.nodes.get(name)
        return name if node is None else f"{name} (the cotangent at {node.at})"

    def step(self, node: Step) -> Iterator[Difference]:
        """How a step differs in its token, what it saves and names, and what it reads."""
        site = self.fwd.layer(node.site)
        due = _step(site, node.step.input, node.at, self.fwd)
        have = self.have.nodes[self.keys[node.name]]
        if have["token"] != due["token"]:
            token = due["token"]
            yield Difference(
                node.span,
                f"{node.name} is {node.token}; the forward has {_described(site.operation)} at "
                f"{site.name}, whose backward is {token or 'not rendered'}",
                node.name,
                remedy=f"should be {token or 'left out'}",
            )
        for attribute, verb, nothing in (
            ("saved", "save", "nothing"),
            ("weights", "name", "no weight"),
        ):
            wanted = due[attribute]
            assert isinstance(wanted, dict)
            for symbol, name in have[attribute].items():
                right = wanted.get(symbol)
                if right is None and len(wanted) == 1:
                    (right,) = wanted.values()
                if name == right:
                    continue
                what = "weight " if attribute == "weights" else ""
                written = getattr(node, attribute)[symbol]
                absent = "nothing" if attribute == "saved" else "None"
                yield Difference(
                    node.span,
                    f"{node.name} {verb}s {'the ' if what else ''}{what}{written}; "
                    f"the forward makes it {right or absent}",
                    node.name,
                    (written,) if attribute == "saved" else (),
                    f"should {verb} {right or nothing}",
                )
        right = self.at(site.name)
        if node.incoming != right:
            yield Difference(
                node.span,
                f"{node.name} reads {self.describe(node.incoming)}; "
                f"the forward makes it {right or 'a value the chain lacks'} (at {site.name})",
                node.name,
                (node.incoming,),
                f"should read {right or 'a value the chain lacks'}",
            )

    def fan_in(self, node: FanIn) -> Iterator[Difference]:
        """How a sum differs in what it adds, the order aside."""
        wanted = [self.names.get(part) for part in self.certified.parts(node.at)]
        if Counter(node.operands) == Counter(wanted):
            return
        listed = " and ".join(w or f"a value at {node.at} the chain lacks" for w in wanted)
        yield Difference(
            node.span,
            f"{node.name} adds {' and '.join(node.operands)}; what reaches {node.at} is {listed}",
            node.name,
            tuple(o for o in node.operands if o not in wanted),
            f"should add {listed}",
        )

    def missing(self) -> Iterator[Difference]:
        """Steps the chain lacks although something upstream needs them, and a lost fan-in."""
        emitted, out = self.emitted, 0
        for name in reversed([self.fwd.block.input, *self.fwd.sites]):
            parts = self.certified.parts(name)
            for part in parts:
                if part[0] != "step" or part not in self.due or part in self.names:
                    continue
                if self.due.nodes[part]["at"] != name:  # handed on by a sum: told there
                    continue
                site = self.fwd.layer(part[1])
                token = site.operation.step(part[2]).token or "a step no render emits"
                out += 1
                yield Difference(
                    emitted.span,
                    f"the chain has no step for {_described(site.operation)} at {site.name}: "
                    f"{token}",
                    name,
                    remedy=f"lacks {token}",
                )
            if ("sum", name) in self.due and ("sum", name) not in self.names:
                values = " and ".join(self.names.get(p) or "a missing value" for p in parts)
                out += 1
                yield Difference(
                    emitted.span,
                    f"the cotangent at {name} is {emitted.output or 'left out'}; "
                    f"the forward adds {values}",
                    name,
                    remedy=f"should add {values}",
                )
        right = self.at(self.fwd.block.input) if HANDED in self.due else None
        if right is None:
            return
        if emitted.output is not None and emitted.output != right:
            yield Difference(
                emitted.span,
                f"the block hands on {self.describe(emitted.output)}; "
                f"the forward makes it {right} (at {self.fwd.block.input})",
                emitted.output,
                remedy=f"should not be handed on, but {right}",
            )
        if emitted.output is None and not out:
            yield Difference(
                emitted.span,
                f"the chain of {self.fwd.kind.name} does not end with {right}, "
                f"the cotangent at {self.fwd.block.input}",
                right,
                remedy="should be handed on",
            )

    def read(self, parameter: str) -> Iterator[Difference]:
        """How a parameter's read differs in its cotangent and its node's family."""
        site = self.certified.reads[parameter]
        read = self.emitted.reads.get(parameter)
        right = self.at(site)
        if read is None:
            yield Difference(
                self.emitted.span,
                f"{parameter} is read by no gradient node",
                parameter,
                remedy=f"should read {right or 'a value the chain lacks'}",
            )
            return
        if read.cotangent != right:
            yield Difference(
                read.cotangent_span,
                f"{parameter} reads {self.describe(read.cotangent)}; "
                f"the forward makes it {right or 'a value the chain lacks'} (at {site})",
                parameter,
                (read.cotangent,),
                f"should read {right or 'a value the chain lacks'}",
            )
        due = self.due.nodes[("read", parameter)]["family"]
        have = self.have.nodes[("read", parameter)]["family"]
        if due != have:
            said = have or "no family of"
            yield Difference(
                read.cotangent_span,
                f"the render has {said} gradient nodes at strided layers; "
                f"{parameter}'s layer is padded {due}",
                parameter,
                remedy=f"should be a node padded {due}",
            )


def _described(operation: Operation) -> str:
    stride = f" of stride {operation.stride}" if operation.stride != 1 else ""
    padding = f", padded {operation.padding}" if operation.padding else ""
    return f"{operation.word}{stride}{padding}"
