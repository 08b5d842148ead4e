"""The two backward DAGs of a block, and where they differ.

The **certified** backward is differentiation of the forward description: the cotangent at a site
is the sum, over the sites that read it, of that operation's step applied to the cotangent there.
It looks at no render. The **emitted** backward is the render chain, its incoming cotangents
resolved: an operation belongs to the forward site its weight names, or, without a weight, to
the next weightless operation in reverse forward order; it reads the cotangent at that site's
output. :func:`compare` reports every difference at the render's line and column.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from obligations.description import Block, Call, Choice, Kind, Operand, Parameter, Site, Statement
from obligations.errors import InputError, Source, Span, nearest
from obligations.ops import Operation

if TYPE_CHECKING:
    import networkx as nx

INCOMING = "%dy"
"""The block-output cotangent in a render chain."""


@dataclass(frozen=True, slots=True)
class Forward:
    """A block's forward under one kind, indexed.

    ``readers`` maps a site (or the input) to the sites that read it, in forward order.
    """

    block: Block
    kind: Kind
    sites: Mapping[str, Site]
    readers: Mapping[str, tuple[str, ...]]
    parameters: Mapping[str, Parameter]

    def real(self, name: str) -> str:
        """The site that ``name`` stands for, where it only names another one."""
        site = self.sites.get(name)
        while site is not None and site.operation is None and len(site.inputs) == 1:
            name = site.inputs[0]
            site = self.sites.get(name)
        return name

    @property
    def output(self) -> str:
        """The site whose cotangent is the incoming one."""
        return self.block.output

    def trained(self) -> tuple[Parameter, ...]:
        """The parameters that have a gradient, in forward order of their sites."""
        return tuple(p for s in self.sites.values() for p in s.parameters if p.trained)


def forward(block: Block, kind: Kind) -> Forward:
    """Index ``block`` under ``kind``."""
    sites = {s.name: s for s in block.sites[kind.name]}
    readers: dict[str, list[str]] = {name: [] for name in (block.input, *sites)}
    for site in sites.values():
        for name in site.inputs:
            readers[name].append(site.name)
    parameters = {p.render: p for s in sites.values() for p in s.parameters if p.render}
    return Forward(block, kind, sites, {k: tuple(v) for k, v in readers.items()}, parameters)


# -- certified ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Contribution:
    """What the operation at ``site`` sends to the site it reads; ``site`` is its output."""

    site: str
    step: Operation | None  # None: a sum, which passes its cotangent on
    saved: str | None
    weight: str | None


@dataclass(frozen=True, slots=True)
class Certified:
    """Differentiation of the forward.

    ``cotangents`` maps every site and the input to its contributions, in forward order of the
    readers; the output site maps to ``()``: its cotangent is the incoming one. ``reads`` maps a
    trained parameter's render name to the site whose cotangent its gradient reads; ``family``
    to the padding family of its gradient node.
    """

    cotangents: Mapping[str, tuple[Contribution, ...]]
    reads: Mapping[str, str]
    family: Mapping[str, str | None]
    graph: nx.DiGraph


def weight_operand(operation: Operation) -> str | None:
    """The template symbol of the weight a backward step names: ``W``, ``γ``."""
    known = {p.symbol for p in operation.parameters}
    return next((o for o in operation.backward.operands if o in known), None)


def _saves_input(operation: Operation) -> bool:
    return "x" in operation.backward.operands


def certify(fwd: Forward) -> Certified:
    """Differentiate the forward description (chain rule over its DAG, no render involved)."""
    import networkx as nx

    graph = nx.DiGraph()
    cotangents: dict[str, tuple[Contribution, ...]] = {}
    for name in (fwd.block.input, *fwd.sites):
        found = []
        for reader in fwd.readers[name]:
            site = fwd.sites[reader]
            operation = site.operation
            symbol = None if operation is None else weight_operand(operation)
            weight = next((p.render for p in site.parameters if p.symbol == symbol), None)
            saved = site.inputs[0] if operation is not None and _saves_input(operation) else None
            # A site read twice by one sum is one reader listed twice, and counts twice.
            found.append(Contribution(reader, operation, saved, weight))
            graph.add_edge(reader, name, operation="" if operation is None else operation.word)
        cotangents[name] = tuple(found)
    if not nx.is_directed_acyclic_graph(graph):  # pragma: no cover - the reader refuses cycles
        raise AssertionError("a forward with a cycle got past the reader")
    reads = {p.render: p.site for p in fwd.trained()}
    family = {
        p.render: op.padding
        for p in fwd.trained()
        if (op := fwd.sites[p.site].operation) is not None
    }
    return Certified(cotangents, reads, family, graph)


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
    operation
        The table's entry for the token (among several, the one of the site where it fits).
    site
        The forward site whose operation this reverses.
    incoming
        The chain value it reads, or ``%dy``.
    saved
        The saved activation it names, a site, or ``None``.
    weight
        The weight it names, a render parameter name, or ``None``.
    at
        The site whose cotangent (or one contribution to it) this is: what ``site`` reads.
    """

    name: str
    token: str
    operation: Operation
    site: str
    incoming: str
    saved: str | None
    weight: str | None
    at: str
    span: Span


@dataclass(frozen=True, slots=True)
class FanIn:
    """``addVB(a, b)``; ``operands`` in the order written."""

    name: str
    operands: tuple[str, str]
    at: str
    span: Span


@dataclass(frozen=True, slots=True)
class ReadOf:
    """Which chain value a parameter's gradient node reads."""

    parameter: str
    cotangent: str
    span: Span


@dataclass(frozen=True, slots=True)
class Emitted:
    """A render chain, resolved.

    ``nodes`` are in textual order; ``output`` is the block-input cotangent, ``None`` where the
    render stops before it (a stem). ``family`` is what the render says of its strided gradient
    nodes.
    """

    nodes: Mapping[str, Step | FanIn]
    output: str | None
    reads: Mapping[str, ReadOf]
    family: Literal["symmetric", "XLA"] | None
    span: Span
    graph: nx.DiGraph = field(compare=False, repr=False)

    def at(self, name: str, fwd: Forward) -> str:
        """The site that the chain value ``name`` is the cotangent of."""
        return fwd.output if name == INCOMING else self.nodes[name].at


def emitted_graph(nodes: Mapping[str, Step | FanIn]) -> nx.DiGraph:
    """Chain values as nodes, an edge from each value to the ones that read it."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_node(INCOMING)
    for node in nodes.values():
        for source in sources_of(node):
            graph.add_edge(source, node.name)
    return graph


def sources_of(node: Step | FanIn) -> tuple[str, ...]:
    """The chain values ``node`` reads."""
    return (node.incoming,) if isinstance(node, Step) else node.operands


def unrolled(emitted: Emitted, name: str) -> tuple[object, ...]:
    """A chain value as what it is made of: its operation and operands, down to the incoming."""
    node = emitted.nodes.get(name)
    if node is None:
        return (name,)
    operands = tuple(unrolled(emitted, source) for source in sources_of(node))
    if isinstance(node, Step):
        return (node.token, node.site, node.saved, node.weight, *operands)
    return ("+", *operands)


def _choose(value: Call | Choice | Operand, flags: Mapping[str, bool]) -> Call | Operand:
    while isinstance(value, Choice):
        value = value.then if flags.get(value.flag, False) else value.otherwise
    return value


def resolve(fwd: Forward, flags: Mapping[str, bool], source: Source) -> Emitted:
    """Find each operation's forward site and incoming cotangent (see the module's text).

    ``flags`` decide the chain's ``if``\\ s: the kind's flags and the net's options.

    Raises
    ------
    InputError
        When a step cannot be given a site: it names a weight no site has, or there are more
        weightless steps than weightless operations.
    """
    from obligations.ops import JOIN_TOKEN, by_token

    chain = fwd.block.chain
    alias: dict[str, str] = {INCOMING: INCOMING}
    calls: dict[str, tuple[Statement, Call]] = {}
    for statement in chain.statements:
        value = _choose(statement.value, flags)
        if isinstance(value, Operand):
            alias[statement.name] = alias.get(value.text, value.text)
        else:
            calls[statement.name] = (statement, value)

    def named(name: str) -> str:
        return alias.get(name, name)

    # Step one: the site of each operation.
    table = by_token()
    sites: dict[str, str] = {}
    weightless: list[str] = []
    for name, (_, call) in calls.items():
        if call.token == JOIN_TOKEN:
            continue
        weight = _written(table[call.token][0], call, fwd)[0]
        if weight is None:
            weightless.append(name)
        else:
            sites[name] = fwd.parameters[weight].site
    free = [
        s
        for s in reversed(tuple(fwd.sites.values()))
        if s.operation is not None and weight_operand(s.operation) is None
    ]
    for name, site in _align(weightless, free, calls, fwd).items():
        sites[name] = site
    for name in weightless:
        if name not in sites:
            statement, call = calls[name]
            raise InputError(
                source,
                call.span,
                f"{name} = {call.token} reverses no operation of the forward: "
                f"its operations without a weight are taken in order and run out here",
            )

    # Step two: the chain value that is the cotangent at each site.
    by_site = {site: name for name, site in sites.items()}
    joins = {
        n: tuple(named(o.text) for o in c.operands) for n, (_, c) in calls.items() if n not in sites
    }
    contributions: dict[str, tuple[str, ...]] = {}
    state: dict[str, str] = {}

    def cotangent(site: str, span: Span) -> str:
        """The chain value at ``site``, or an error at ``span`` when the chain has none."""
        if site == fwd.output:
            return INCOMING
        if site in state:
            return state[site]
        found = []
        for reader in fwd.readers[site]:
            operation = fwd.sites[reader].operation
            if operation is None:
                found.append(cotangent(reader, span))
            elif reader in by_site:
                found.append(by_site[reader])
        if not found:
            raise InputError(
                source, span, f"the chain has no cotangent at {site}, which this operation reads"
            )
        value = found[0]
        if len(fwd.readers[site]) > 1:
            join = next((n for n, ops in joins.items() if set(ops) & set(found)), None)
            value = join or found[0]
        contributions[site] = tuple(found)
        state[site] = value
        return value

    nodes: dict[str, Step | FanIn] = {}
    for name, (statement, call) in calls.items():
        if call.token == JOIN_TOKEN:
            continue
        at = fwd.sites[sites[name]]
        operation = _entry(table[call.token], at)
        weight, saved = _written(operation, call, fwd)
        nodes[name] = Step(
            name=name,
            token=call.token,
            operation=operation,
            site=at.name,
            incoming=cotangent(at.name, call.span),
            saved=saved,
            weight=weight,
            at=fwd.real(at.inputs[0]),
            span=statement.span,
        )
    for name, operands in joins.items():
        statement, call = calls[name]
        if len(operands) != 2:
            raise InputError(source, call.span, f"{JOIN_TOKEN} takes two operands")
        first = nodes.get(operands[0])
        second = nodes.get(operands[1])
        joined = next((n.at for n in (first, second) if n is not None), fwd.block.input)
        nodes[name] = FanIn(name, (operands[0], operands[1]), joined, statement.span)
    ordered = {s.name: nodes[s.name] for s in chain.statements if s.name in nodes}
    _in_order(ordered, fwd, source)
    output = _output(fwd, ordered, chain.statements, named)
    reads = {
        r.parameter: ReadOf(r.parameter, named(r.cotangent), r.cotangent_span) for r in chain.reads
    }
    return Emitted(ordered, output, reads, chain.family, chain.span, emitted_graph(ordered))


def _in_order(nodes: Mapping[str, Step | FanIn], fwd: Forward, source: Source) -> None:
    """Refuse a chain in which a value is read before it is there."""
    there = {INCOMING}
    for node in nodes.values():
        for name in sources_of(node):
            if name in nodes and name not in there:
                at = fwd.real(nodes[name].at)
                raise InputError(
                    source,
                    node.span,
                    f"{node.name} reads {name} (the cotangent at {at}), which comes after it",
                )
        there.add(node.name)


def _output(
    fwd: Forward,
    nodes: Mapping[str, Step | FanIn],
    statements: tuple[Statement, ...],
    named: object,
) -> str | None:
    """The chain's last value, if it stands at the block's input."""
    assert callable(named)
    last = named(statements[-1].name) if statements else INCOMING
    node = nodes.get(last)
    return last if node is not None and node.at == fwd.block.input else None


def _entry(candidates: tuple[Operation, ...], site: Site) -> Operation:
    """Among the table's entries for a token, the one of the site's operation, else the first."""
    return next((c for c in candidates if c is site.operation), candidates[0])


def _written(operation: Operation, call: Call, fwd: Forward) -> tuple[str | None, str | None]:
    """The weight and the saved activation a call names."""
    weight = saved = None
    symbols = {p.symbol for p in operation.parameters}
    for symbol, operand in zip(operation.backward.operands, call.operands, strict=False):
        if symbol in symbols:
            weight = operand.text
        elif symbol == "x":
            saved = operand.text
    return weight, saved


def _align(
    steps: list[str], free: list[Site], calls: Mapping[str, tuple[Statement, Call]], fwd: Forward
) -> dict[str, str]:
    """Weightless steps to weightless operations, in order; where some are left out, by token.

    With as many steps as operations the order alone decides, so that a wrong token is a
    difference to report. With fewer, a longest common subsequence of tokens finds the gap.
    """
    if len(steps) == len(free):
        return {name: site.name for name, site in zip(steps, free, strict=True)}
    wanted = [s.operation.backward.token if s.operation else None for s in free]
    have = [calls[n][1].token for n in steps]
    rows, columns = len(have), len(wanted)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            same = have[i] == wanted[j]
            # Prefer the site whose saved value the step names.
            weight = 0
            if same:
                operands = calls[steps[i]][1].operands
                weight = 2 + (bool(operands) and operands[0].text == free[j].inputs[0])
            best[i][j] = max(best[i + 1][j], best[i][j + 1], weight and weight + best[i + 1][j + 1])
    out: dict[str, str] = {}
    i = j = 0
    while i < rows and j < columns:
        if best[i][j] == best[i + 1][j]:
            i += 1
        elif best[i][j] == best[i][j + 1]:
            j += 1
        else:
            out[steps[i]] = free[j].name
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
    out: list[Difference] = []
    canonical = _Canonical(fwd, certified, emitted)

    for node in emitted.nodes.values():
        if isinstance(node, Step):
            out += _compare_step(fwd, canonical, node)
        else:
            out += _compare_fan_in(fwd, canonical, node, emitted)
    out += _missing(fwd, canonical, emitted)
    for parameter, site in certified.reads.items():
        read = emitted.reads.get(parameter)
        if read is None:
            out.append(
                Difference(
                    emitted.span,
                    f"{parameter} is read by no gradient node",
                    parameter,
                    remedy=f"should read {canonical.at(site) or 'a value the chain lacks'}",
                )
            )
            continue
        right = canonical.at(site)
        if read.cotangent != right:
            out.append(
                Difference(
                    read.span,
                    f"{parameter} reads {canonical.describe(read.cotangent)}; "
                    f"the forward makes it {right or 'a value the chain lacks'} (at {site})",
                    parameter,
                    (read.cotangent,),
                    f"should read {right or 'a value the chain lacks'}",
                )
            )
        family = certified.family[parameter]
        if family is not None and family != emitted.family:
            said = emitted.family or "no family of"
            out.append(
                Difference(
                    read.span,
                    f"the render has {said} gradient nodes at strided layers; "
                    f"{parameter}'s layer is padded {family}",
                    parameter,
                    remedy=f"should be a node padded {family}",
                )
            )
    return sorted(out, key=lambda d: (d.span.line, d.span.column))


class _Canonical:
    """The chain value that should be the cotangent at each site."""

    def __init__(self, fwd: Forward, certified: Certified, emitted: Emitted) -> None:
        self.fwd = fwd
        self.certified = certified
        self.emitted = emitted
        self.by_site = {n.site: n.name for n in emitted.nodes.values() if isinstance(n, Step)}
        self.joins = {n.at: n.name for n in emitted.nodes.values() if isinstance(n, FanIn)}

    def contribution(self, c: Contribution) -> str | None:
        return self.at(c.site) if c.step is None else self.by_site.get(c.site)

    def at(self, site: str) -> str | None:
        if site == self.fwd.output:
            return INCOMING
        parts = self.certified.cotangents[site]
        if len(parts) == 1:
            return self.contribution(parts[0])
        return self.joins.get(site)

    def describe(self, name: str) -> str:
        if name == INCOMING:
            return f"{name} (the incoming cotangent, at {self.fwd.output})"
        node = self.emitted.nodes.get(name)
        return name if node is None else f"{name} (the cotangent at {node.at})"


def _compare_step(fwd: Forward, canonical: _Canonical, node: Step) -> list[Difference]:
    site = fwd.sites[node.site]
    operation = site.operation
    assert operation is not None
    out = []
    if node.token != operation.backward.token:
        out.append(
            Difference(
                node.span,
                f"{node.name} is {node.token}; the forward has {_described(operation)} at "
                f"{site.name}, whose backward is {operation.backward.token or 'not rendered'}",
                node.name,
                remedy=f"should be {operation.backward.token or 'left out'}",
            )
        )
    wanted = fwd.real(site.inputs[0]) if _saves_input(operation) else None
    if node.saved is not None and fwd.real(node.saved) != wanted:
        out.append(
            Difference(
                node.span,
                f"{node.name} saves {node.saved}; the forward makes it {wanted or 'nothing'}",
                node.name,
                (node.saved,),
                f"should save {wanted or 'nothing'}",
            )
        )
    symbol = weight_operand(operation)
    weight = next((p.render for p in site.parameters if p.symbol == symbol), None)
    if node.weight != weight and node.weight is not None:
        out.append(
            Difference(
                node.span,
                f"{node.name} names the weight {node.weight}; the forward makes it {weight}",
                node.name,
                remedy=f"should name {weight or 'no weight'}",
            )
        )
    right = canonical.at(site.name)
    if node.incoming != right:
        out.append(
            Difference(
                node.span,
                f"{node.name} reads {canonical.describe(node.incoming)}; "
                f"the forward makes it {right or 'a value the chain lacks'} (at {site.name})",
                node.name,
                (node.incoming,),
                f"should read {right or 'a value the chain lacks'}",
            )
        )
    return out


def _described(operation: Operation) -> str:
    stride = f" of stride {operation.stride}" if operation.stride != 1 else ""
    padding = f", padded {operation.padding}" if operation.padding else ""
    return f"{operation.word}{stride}{padding}"


def _compare_fan_in(
    fwd: Forward, canonical: _Canonical, node: FanIn, emitted: Emitted
) -> list[Difference]:
    parts = canonical.certified.cotangents[node.at]
    wanted = [canonical.contribution(p) for p in parts]
    if sorted(node.operands) == sorted(w or "" for w in wanted):
        return []
    listed = " and ".join(w or f"a value at {node.at} the chain lacks" for w in wanted)
    return [
        Difference(
            node.span,
            f"{node.name} adds {' and '.join(node.operands)}; what reaches {node.at} is {listed}",
            node.name,
            tuple(o for o in node.operands if o not in wanted),
            f"should add {listed}",
        )
    ]


def _missing(fwd: Forward, canonical: _Canonical, emitted: Emitted) -> list[Difference]:
    """Steps the chain lacks although something upstream needs them, and a lost fan-in."""
    out = []
    # A stem's render stops where no parameter is left to feed.
    wants_input = fwd.block.role != "stem"
    needed = {p.site for p in fwd.trained()}
    for name in reversed([fwd.block.input, *fwd.sites]):
        if name == fwd.output:
            continue
        upstream = _reaches(fwd, name, needed) or (wants_input and _reads_input(fwd, name))
        if not upstream:
            continue
        parts = canonical.certified.cotangents[name]
        for part in parts:
            if part.step is not None and part.site not in canonical.by_site:
                out.append(
                    Difference(
                        emitted.span,
                        f"the chain has no step for {_described(part.step)} at {part.site}: "
                        f"{part.step.backward.token or 'a step no render emits'}",
                        name,
                        remedy=f"lacks {part.step.backward.token or 'a step no render emits'}",
                    )
                )
        if len(parts) > 1 and name not in canonical.joins:
            values = [canonical.contribution(p) or "a missing value" for p in parts]
            out.append(
                Difference(
                    emitted.span,
                    f"the cotangent at {name} is {emitted.output or 'left out'}; "
                    f"the forward adds {' and '.join(values)}",
                    name,
                    remedy=f"should add {' and '.join(values)}",
                )
            )
    if wants_input:
        right = canonical.at(fwd.block.input)
        if right is not None and emitted.output is not None and emitted.output != right:
            out.append(
                Difference(
                    emitted.span,
                    f"the block hands on {canonical.describe(emitted.output)}; "
                    f"the forward makes it {right} (at {fwd.block.input})",
                    emitted.output,
                    remedy=f"should not be handed on, but {right}",
                )
            )
        if right is not None and emitted.output is None and not out:
            out.append(
                Difference(
                    emitted.span,
                    f"the chain of {fwd.kind.name} does not end with {right}, "
                    f"the cotangent at {fwd.block.input}",
                    right,
                    remedy="should be handed on",
                )
            )
    return out


def _reaches(fwd: Forward, name: str, needed: set[str]) -> bool:
    """Whether a parameter is read at ``name`` or before it."""
    stack, seen = [name], set()
    while stack:
        at = stack.pop()
        if at in needed:
            return True
        if at in seen or at not in fwd.sites:
            continue
        seen.add(at)
        stack += fwd.sites[at].inputs
    return False


def _reads_input(fwd: Forward, name: str) -> bool:
    """Whether the block's input is among what ``name`` depends on."""
    stack, seen = [name], set()
    while stack:
        at = stack.pop()
        if at == fwd.block.input:
            return True
        if at in seen or at not in fwd.sites:
            continue
        seen.add(at)
        stack += fwd.sites[at].inputs
    return False


def unknown_flag(source: Source, span: Span, flag: str, known: Mapping[str, bool]) -> InputError:
    """The error for a chain's ``if`` on a flag no kind or option defines."""
    return InputError(source, span, f"unknown flag '{flag}'", hint=nearest(flag, known))
