"""Every single-point fault of a net's backward, made on one side after it is resolved.

The forward keeps its meaning. A fault is made in a block's resolved chain (incoming cotangents
stay put), in a declaration as it is written, in the threading of the whole net, or in its loss.
Whether it is caught is asked elsewhere (:mod:`obligations.mutation.mutants`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations

import networkx as nx

from obligations.description import Net, Parameter, Shape
from obligations.errors import ObligationsError
from obligations.lean import Declaration, Environment, printer, syntax as s
from obligations.ops import SEED, STRINGS, Operation, operations
from obligations.statements import (
    INCOMING,
    Deriver,
    Emitted,
    FanIn,
    Forward,
    Handed,
    LossTerms,
    Obligation,
    Section,
    Step,
    Threading,
    Tied,
    threading,
    vec,
)


@dataclass(frozen=True, slots=True)
class Written:
    """A declaration, changed; where it is one name, ``old`` at ``slot`` of ``head`` is ``new``.

    ``covers`` are the symbols of the parameters that the clause ties, where it is in one.
    """

    declaration: Declaration
    head: str = ""
    slot: str = ""
    old: str = ""
    new: str = ""
    covers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault.

    Attributes
    ----------
    fault
        What kind of fault: a heading of the table of results.
    block
        The block it is in; empty for the whole net.
    text
        What was changed, in one sentence.
    change
        The changed thing: a block's resolved chains, a declaration, or the threading of the
        whole net; ``None`` where the fault cannot be written down.
    refused
        Why it cannot.
    """

    fault: str
    block: str
    text: str
    change: Section | Written | Threading | None
    refused: str = ""


# -- in a chain --------------------------------------------------------------------------------


def _put(emitted: Emitted, node: Step | FanIn) -> Emitted:
    nodes = {n: node if n == node.name else v for n, v in emitted.nodes.items()}
    return replace(emitted, nodes=nodes)


def _gone(emitted: Emitted, name: str, instead: str) -> Emitted:
    """``emitted`` without the value ``name``; what read it reads ``instead``."""

    def moved(value: str) -> str:
        return instead if value == name else value

    nodes: dict[str, Step | FanIn] = {}
    for n, node in emitted.nodes.items():
        if n == name:
            continue
        if isinstance(node, Step):
            nodes[n] = replace(node, incoming=moved(node.incoming))
        else:
            nodes[n] = replace(node, operands=tuple(map(moved, node.operands)))
    reads = {p: replace(r, cotangent=moved(r.cotangent)) for p, r in emitted.reads.items()}
    output = emitted.output
    return replace(
        emitted,
        nodes=nodes,
        reads=reads,
        output=None if output is None else moved(output),
    )


def _downstream(emitted: Emitted, name: str) -> set[str]:
    """``name`` and every chain value that depends on it."""
    found: set[str] = nx.descendants(emitted.values, name)
    return found | {name}


class _Chain:
    """The faults of one block's chain."""

    def __init__(self, section: Section) -> None:
        self.section = section
        self.block = section.block.name
        self.first = section.first.name
        self.fwd = section.forwards[self.first]
        self.emitted = section.emitted[self.first]

    def mutant(
        self, fault: str, text: str, edit: Callable[[Emitted], Emitted], kind: str | None = None
    ) -> Mutant:
        """``edit`` at every kind (or at one): a render is one text for all of them."""
        changed = {k: edit(e) if kind in (None, k) else e for k, e in self.section.emitted.items()}
        return Mutant(fault, self.block, text, replace(self.section, emitted=changed))

    def values(self, fwd: Forward, emitted: Emitted) -> dict[str, Shape]:
        """Every chain value with its shape, the incoming cotangent first."""
        return {n: fwd.shape(emitted.at(n, fwd)) for n in (INCOMING, *emitted.nodes)}

    def all(self) -> Iterator[Mutant]:
        """Every fault, by kind of fault."""
        yield from self.reads()
        seen: set[str] = set()
        for kind in self.section.block.kinds:
            fwd, emitted = self.section.forwards[kind.name], self.section.emitted[kind.name]
            for node in emitted.nodes.values():
                if node.name in seen:
                    continue
                seen.add(node.name)
                if isinstance(node, FanIn):
                    yield from self.fan_in(kind.name, fwd, emitted, node)
                else:
                    yield from self.step(fwd, emitted, node)
            yield from self.skip(kind.name, emitted)
        yield from self.family()

    # -- reads ---------------------------------------------------------------------------------

    def reads(self) -> Iterator[Mutant]:
        """Each read, and each pair one clause ties, moved to each other value of its shape."""
        shapes = self.values(self.fwd, self.emitted)
        names = {p.lean: p.render for p in self.fwd.trained()}
        groups: dict[tuple[str, ...], None] = {}
        for site in self.fwd.sites.values():
            own = {p.symbol: p.lean for p in site.parameters}
            for clause in site.clauses:
                covered = tuple(names[own[c]] for c in clause.covers)
                groups |= {(one,): None for one in covered} | {covered: None}
        for group in groups:
            right = self.emitted.reads[group[0]].cotangent
            for value, shape in shapes.items():
                if value == right or shape != shapes[right]:
                    continue
                yield self.mutant(
                    "read moved",
                    f"{' and '.join(group)} read {value} instead of {right}",
                    partial(self._read, group=group, value=value),
                )

    @staticmethod
    def _read(emitted: Emitted, group: tuple[str, ...], value: str) -> Emitted:
        if value != INCOMING and value not in emitted.nodes:
            return emitted
        changed = {p: replace(emitted.reads[p], cotangent=value) for p in group}
        return replace(emitted, reads={**emitted.reads, **changed})

    # -- fan-in --------------------------------------------------------------------------------

    def fan_in(self, kind: str, fwd: Forward, emitted: Emitted, node: FanIn) -> Iterator[Mutant]:
        for place, lost in enumerate(node.operands):
            kept = (*node.operands[:place], *node.operands[place + 1 :])
            left = replace(node, operands=kept)
            yield self.mutant(
                "fan-in operand dropped",
                f"{node.name} is {' + '.join(kept)}: {lost} is dropped",
                partial(_put, node=left)
                if len(kept) > 1
                else partial(_gone, name=node.name, instead=kept[0]),
                kind,
            )
        for twice in node.operands:
            yield self.mutant(
                "fan-in operand doubled",
                f"{node.name} adds {', '.join(node.operands)} and {twice} again",
                partial(self._again, node=node, twice=twice),
                kind,
            )
        shapes = self.values(fwd, emitted)
        below = _downstream(emitted, node.name)
        for place, have in enumerate(node.operands):
            for value, shape in shapes.items():
                if value in (have, *below) or shape != shapes[have]:
                    continue
                operands = (*node.operands[:place], value, *node.operands[place + 1 :])
                yield self.mutant(
                    "fan-in operand exchanged",
                    f"{node.name} adds {' and '.join(operands)}",
                    partial(_put, node=replace(node, operands=operands)),
                    kind,
                )

    @staticmethod
    def _again(emitted: Emitted, node: FanIn, twice: str) -> Emitted:
        inner = replace(node, name=f"{node.name}′")
        nodes: dict[str, Step | FanIn] = {}
        for name, old in emitted.nodes.items():
            if name == node.name:
                nodes[inner.name] = inner
                nodes[name] = replace(node, operands=(inner.name, twice))
            else:
                nodes[name] = old
        return replace(emitted, nodes=nodes)

    def skip(self, kind: str, emitted: Emitted) -> Iterator[Mutant]:
        """The incoming cotangent added to what the block hands on."""
        if emitted.output is None:
            return
        name = f"{emitted.output}″"
        added = FanIn(name, (emitted.output, INCOMING), self.fwd.block.input, emitted.span)
        yield self.mutant(
            "skip added",
            f"{kind} hands on {emitted.output} + {INCOMING}",
            partial(self._added, node=added),
            kind,
        )

    @staticmethod
    def _added(emitted: Emitted, node: FanIn) -> Emitted:
        return replace(emitted, nodes={**emitted.nodes, node.name: node}, output=node.name)

    # -- steps ---------------------------------------------------------------------------------

    def step(self, fwd: Forward, emitted: Emitted, node: Step) -> Iterator[Mutant]:
        pool = node.operation.window_gap is not None
        for symbol, saved in node.saved.items():
            wanted = fwd.real(saved)
            for name in (fwd.block.input, *fwd.sites):
                if name == wanted or fwd.shape(name) != fwd.shape(wanted):
                    continue
                yield self.mutant(
                    "pool's saved value exchanged" if pool else "saved activation exchanged",
                    f"{node.name} saves {name} instead of {saved}",
                    partial(_put, node=replace(node, saved={**node.saved, symbol: name})),
                )
        for symbol in node.weights:
            yield from self.weight(fwd, node, symbol)
        yield from self.operation(node)
        shapes = self.values(fwd, emitted)
        below = _downstream(emitted, node.name)
        for value, shape in shapes.items():
            if value in (node.incoming, *below) or shape != shapes[node.incoming]:
                continue
            yield self.mutant(
                "incoming cotangent exchanged",
                f"{node.name} reads {value} instead of {node.incoming}",
                partial(self._incoming, node=node, value=value),
            )
        yield self.mutant(
            "step lost",
            f"{node.name} is {node.incoming}: {node.token} is lost",
            partial(_gone, name=node.name, instead=node.incoming),
        )

    @staticmethod
    def _incoming(emitted: Emitted, node: Step, value: str) -> Emitted:
        if value != INCOMING and value not in emitted.nodes:
            return emitted
        return _put(emitted, replace(node, incoming=value))

    def weight(self, fwd: Forward, node: Step, symbol: str) -> Iterator[Mutant]:
        deriver = Deriver(self.section)
        weight = node.weights[symbol]
        own = fwd.parameters[weight]
        type_ = _text(deriver.parameter_type(own))
        for name, other in fwd.parameters.items():
            if name == weight or _text(deriver.parameter_type(other)) != type_:
                continue
            scales = own.symbol == other.symbol and own.of.role == "scale"
            yield self.mutant(
                "γ taken from a neighbour" if scales else "weight exchanged",
                f"{node.name} takes {name} instead of {weight}",
                partial(_put, node=replace(node, weights={**node.weights, symbol: name})),
            )

    def operation(self, node: Step) -> Iterator[Mutant]:
        """Each other step with operands of the same kind in its place."""
        mine = node.operation
        steps = ((other, step) for other in operations().values() for step in other.backward)
        for other, step in steps:
            same = step.operands == node.step.operands
            if not same or step.lean == node.step.lean:
                continue
            fault = _exchange(mine, other)
            token = step.token or step.lean.split(" ")[0]
            text = f"{node.name} is {token or 'a step'} instead of {node.token}"
            if not step.lean:
                if fault == _PADDING:
                    missing = f"the library has no step for a {other.noun} padded {other.padding}"
                    yield Mutant(fault, self.block, text, None, missing)
                continue
            yield self.mutant(
                fault,
                text,
                partial(
                    _put,
                    node=replace(
                        node,
                        token=token,
                        operation=other,
                        step=replace(step, input=node.step.input),
                    ),
                ),
            )

    def family(self) -> Iterator[Mutant]:
        """The gradient nodes of the block's strided layers, of the other padding."""
        others = {o for site in self.fwd.sites.values() for o in other_paddings(site.operation)}
        for other in sorted(others):
            yield self.mutant(
                "gradient nodes of the other padding",
                f"the gradient nodes of {self.block} are {other}",
                partial(replace, family=other),
            )


_PADDING = "step of the other padding"


def other_paddings(operation: Operation) -> list[str]:
    """How else the table pads the operation."""
    word, stride, own = operation.key
    keys = operations()
    return [p for w, s, p in keys if (w, s) == (word, stride) and p is not None and p != own]


def _exchange(mine: Operation, other: Operation) -> str:
    if mine.word == other.word and mine.stride == other.stride:
        return _PADDING
    masks = mine.role == other.role == "activation"
    return "mask of the other kind" if masks else "step of another operation"


def _text(term: s.Term) -> str:
    return printer.term(term, width=10_000)


def chain_mutants(section: Section) -> Iterator[Mutant]:
    """Every fault of a block's resolved chain."""
    return _Chain(section).all()


# -- in a declaration as it is written ---------------------------------------------------------


_Exchange = tuple[s.Term, str, str, str, str]


def exchanges(
    term: s.Term,
    others: Callable[[str], Iterable[str]],
    env: Environment,
    head: str = "",
    slot: str = "",
) -> Iterator[_Exchange]:
    """``term`` with one name in one place exchanged, for each place and each other name.

    Yields the new term, the head and the slot the name stands in, the old name and the new one.
    Bound names and named arguments are left alone. ``head`` and ``slot`` are where ``term`` itself
    stands.
    """
    if isinstance(term, s.Ident):
        for other in others(term.name):
            yield replace(term, name=other), head, slot, term.name, other
    elif isinstance(term, s.App):
        own = s.head(term)
        slots = iter(_slots(term.fn, env))
        for place, arg in enumerate(term.args, 1):
            if not isinstance(arg, s.NamedArg):
                for new, *rest in exchanges(arg, others, env, own, next(slots, "")):
                    yield (s.with_part(term, place, new), *rest)  # type: ignore[misc]
        for new, *rest in () if own else exchanges(term.fn, others, env, head, slot):
            yield (s.with_part(term, 0, new), *rest)  # type: ignore[misc]
    else:
        for place, (part, bound) in enumerate(s.parts(term)):

            def free(name: str, bound: tuple[str, ...] = bound) -> Iterable[str]:
                return () if name in bound else others(name)

            for new, *rest in exchanges(part, free, env, head, slot):
                yield (s.with_part(term, place, new), *rest)  # type: ignore[misc]


def _slots(fn: s.Term, env: Environment) -> list[str]:
    """Names of the explicit binders of ``fn``."""
    if isinstance(fn, s.DotIdent):
        constant = env.find(f"SHlo.{fn.name}")
    elif isinstance(fn, s.Ident):
        constant = env.find(fn.name)
    elif isinstance(fn, s.Proj):
        constant = None
    else:
        return []
    return [] if constant is None else [p.local.name for p in constant.params if not p.implicit]


class _Names:
    """The names a block's declarations use, by type."""

    def __init__(self, section: Section, obligations: Iterable[Obligation]) -> None:
        self.section = section
        deriver = Deriver(section)
        fwd, block = deriver.fwd, section.block
        self.types: dict[str, str] = {}
        parameters: list[Parameter] = [p for x in fwd.sites.values() for p in x.parameters]
        for p in parameters:
            name = p.lean if block.record is None else f"{block.record[0]}.{p.lean}"
            self.types[name] = _text(deriver.parameter_type(p))
        self.sites = {o.name: o.site for o in obligations if o.kind == "cotangent"}
        self.fwd = fwd
        self.values = {
            block.input: _text(vec(block.input_shape)),
            block.incoming: _text(vec(fwd.shape(fwd.output))),
        }

    def bundle(self, lets: Iterable[tuple[str, s.Term]]) -> dict[str, str]:
        """Types of everything a clause may mention."""
        saved = dict(self.section.block.saved)
        found = {**self.types, **self.values, **dict.fromkeys(STRINGS, "String")}
        for name, value in lets:
            site = saved.get(name)
            if site is None:
                site = self.sites.get(s.head(value))
            if site is not None:
                found[name] = _text(vec(self.fwd.shape(site)))
        return found


def written_mutants(
    section: Section, obligations: Iterable[Obligation], env: Environment
) -> Iterator[Mutant]:
    """One name in one slot of a block's declarations, exchanged for each other of its type.

    In a definition: each parameter. In a bundle's clauses: parameters, saved activations and
    strings (which cotangent a clause reads is a fault of the chain).
    """
    obligations = list(obligations)
    names = _Names(section, obligations)
    for obligation in obligations:
        if obligation.kind in ("value", "cotangent", "graph"):
            yield from _definition(section, obligation, names, env)
        elif obligation.kind == "bundle":
            yield from _clauses(section, obligation, names, env)
            yield from _other_padding(section, obligation)


def _same_type(types: Mapping[str, str]) -> Callable[[str], list[str]]:
    by_type: dict[str, list[str]] = {}
    for name, type_ in types.items():
        by_type.setdefault(type_, []).append(name)
    return lambda name: [n for n in by_type.get(types.get(name, ""), []) if n != name]


def _definition(
    section: Section, obligation: Obligation, names: _Names, env: Environment
) -> Iterator[Mutant]:
    d = obligation.declaration
    assert d.value is not None
    for new, head, slot, old, other in exchanges(d.value, _same_type(names.types), env):
        changed = replace(d, value=new)
        yield Mutant(
            "parameter of a definition exchanged",
            section.block.name,
            f"{d.name}: {slot or 'a slot'} of {head} is {other} instead of {old}",
            Written(changed, head, slot, old, other),
        )


def _clauses(
    section: Section, obligation: Obligation, names: _Names, env: Environment
) -> Iterator[Mutant]:

    d = obligation.declaration
    assert d.value is not None
    bound, body = s.split_lets(d.value)
    types = names.bundle((n, v) for n, _, v in bound)
    same = _same_type(types)
    cotangents = {n for n, _, v in bound if s.head(v) in names.sites} | {section.block.incoming}
    used = _mentioned(d)

    def others(name: str) -> list[str]:
        if name in cotangents:
            return []
        return [n for n in same(name) if n not in STRINGS or n in used]

    clauses = s.conjuncts(body)
    for i, clause in enumerate(clauses):
        for new, head, slot, old, other in exchanges(clause, others, env):
            changed = s.conjunction([*clauses[:i], new, *clauses[i + 1 :]])
            tied = obligation.slots[i].parameters
            covered = " and ".join(tied)
            symbols = tuple(names.fwd.parameters[p].symbol for p in tied)
            yield Mutant(
                "string of a clause exchanged" if old in STRINGS else "slot of a clause exchanged",
                section.block.name,
                f"{d.name}, {covered}: {slot or 'a slot'} of {head} is {other} instead of {old}",
                Written(replace(d, value=s.lets(bound, changed)), head, slot, old, other, symbols),
            )


def _other_padding(section: Section, obligation: Obligation) -> Iterator[Mutant]:
    """One clause of a strided layer at the gradient node of the other padding."""

    d = obligation.declaration
    assert d.value is not None
    bound, body = s.split_lets(d.value)
    clauses = s.conjuncts(body)
    fwd = section.forwards[section.first.name]
    for i, slot in enumerate(obligation.slots):
        others = other_paddings(fwd.sites[slot.site].operation)
        if not others:
            continue
        other = others[0]
        flipped = {k: replace(e, family=other) for k, e in section.emitted.items()}
        symbols = tuple(fwd.parameters[p].symbol for p in slot.parameters)
        covered = " and ".join(slot.parameters)
        text = f"{d.name}, {covered}: the gradient node is {other}"
        fault = "gradient node of the other padding"
        deriver = Deriver(replace(section, emitted=flipped))
        try:
            deriver.cotangents()
            new = deriver.clause_at(slot.site, symbols)
        except ObligationsError as error:
            yield Mutant(fault, section.block.name, text, None, error.message)
            continue
        changed = s.conjunction([*clauses[:i], new, *clauses[i + 1 :]])
        yield Mutant(
            fault,
            section.block.name,
            text,
            Written(replace(d, value=s.lets(bound, changed)), "", fault, "", "", symbols),
        )


def _mentioned(d: Declaration) -> set[str]:
    return {n for g in d.binders for n in g.names}


# -- in the whole net --------------------------------------------------------------------------


def threading_mutants(net: Net) -> Iterator[Mutant]:
    """Layers exchanged; a layer, a prefix or a cotangent off by one; a kind for another."""
    thread = threading(net)
    layers = list(net.layers)
    for i, a in enumerate(layers):
        for j in range(i + 1, len(layers)):
            b = layers[j]
            if a.block != b.block and j != i + 1:
                continue
            order = [*layers]
            order[i], order[j] = b, a
            yield Mutant(
                "two layers exchanged",
                "",
                f"the layers {a.name} and {b.name} are exchanged",
                threading(replace(net, layers=tuple(order))),
            )
    names = [x.name for x in layers]
    cotangents = [SEED, *net.capstone.outputs]
    for k, handed in enumerate(thread.handed):
        for new, fault, text in _handed(net, handed, names, cotangents):
            changed = (*thread.handed[:k], new, *thread.handed[k + 1 :])
            yield Mutant(fault, "", text, replace(thread, handed=changed))
    for k, tied in enumerate(thread.tied):
        for one, fault, text in _tied(net, tied, names, cotangents):
            bundles = (*thread.tied[:k], one, *thread.tied[k + 1 :])
            yield Mutant(fault, "", text, replace(thread, tied=bundles))


def _beside(items: list[str], item: str) -> list[str]:
    at = items.index(item)
    return [items[i] for i in (at - 1, at + 1) if 0 <= i < len(items)]


def _handed(
    net: Net, handed: Handed, names: list[str], cotangents: list[str]
) -> Iterator[tuple[Handed, str, str]]:
    blocks = len(net.layers) - 2
    block, _ = net.block_of(handed.kind)
    # A block without parameters takes no layer's weights.
    for layer in _beside(names, handed.layer) if block.bundle else ():
        yield (
            replace(handed, layer=layer),
            "weights of a neighbour",
            f"{handed.name} takes the weights of {layer} instead of {handed.layer}",
        )
    for before in (handed.before - 1, handed.before + 1):
        if 0 <= before <= blocks:
            yield (
                replace(handed, before=before),
                "prefix off by one",
                f"{handed.name} takes the input after block {before} instead of {handed.before}",
            )
    for incoming in _beside(cotangents, handed.incoming):
        yield (
            replace(handed, incoming=incoming),
            "cotangent off by one",
            f"{handed.name} receives {incoming} instead of {handed.incoming}",
        )
    for kind in block.kinds:
        if kind.name != handed.kind:
            yield (
                replace(handed, kind=kind.name),
                "kind for another of its type",
                f"{handed.name} is the input cotangent of {kind.name} instead of {handed.kind}",
            )


def _tied(
    net: Net, tied: Tied, names: list[str], cotangents: list[str]
) -> Iterator[tuple[Tied, str, str]]:
    blocks = len(net.layers) - 2
    what = f"the bundle of {tied.layer}"
    for layer in _beside(names, tied.layer):
        if net.layers[names.index(layer)].block == net.layers[names.index(tied.layer)].block:
            yield (
                replace(tied, layer=layer),
                "weights of a neighbour",
                f"{what} takes the weights of {layer}",
            )
    places = [None, *range(blocks + 1)]
    at = places.index(tied.before)
    for i in (at - 1, at + 1):
        if 0 <= i < len(places):
            before = places[i]
            yield (
                replace(tied, before=before),
                "prefix off by one",
                f"{what} takes "
                + ("the net's input" if before is None else f"the input after block {before}"),
            )
    for incoming in _beside(cotangents, tied.incoming):
        yield (
            replace(tied, incoming=incoming),
            "cotangent off by one",
            f"{what} receives {incoming} instead of {tied.incoming}",
        )


def field_mutants(net: Net, capstone: Declaration, env: Environment) -> Iterator[Mutant]:
    """At the stem and the head, each weight field exchanged for each other of its type."""

    loose = {f for b in net.blocks.values() for group in b.loose for _, f in group}
    same = _same_type({f"w.{x.name}": _text(x.type) for x in net.weights if x.name in loose})
    bound, body = s.split_lets(capstone.type)
    clauses = s.conjuncts(body)

    def mutant(type_: s.Term, where: str, head: str, slot: str, old: str, other: str) -> Mutant:
        changed = replace(capstone, type=type_)
        text = f"{where}: {slot or 'a slot'} of {head} is {other} instead of {old}"
        return Mutant(
            "field of the weights exchanged",
            "",
            text,
            Written(changed, head, slot, old, other),
        )

    for i, (name, type_, value) in enumerate(bound):
        for new, *exchange in exchanges(value, same, env):
            changed = s.lets([*bound[:i], (name, type_, new), *bound[i + 1 :]], body)
            yield mutant(changed, name, *exchange)
    for i, clause in enumerate(clauses):
        for new, *exchange in exchanges(clause, same, env):
            changed = s.lets(bound, s.conjunction([*clauses[:i], new, *clauses[i + 1 :]]))
            yield mutant(changed, capstone.name, *exchange)


# -- in the loss -------------------------------------------------------------------------------

LOSS_SIGN, LOSS_STRING = "loss: sign", "loss: string exchanged"
"""Faults that any loss can have; the others are its own."""


def loss_mutants(net: Net, capstone: Declaration, lemma: Declaration) -> Iterator[Mutant]:
    """The sign turned, what the loss itself offers, and its strings exchanged."""
    terms = LossTerms(net)
    graphs = list(_graph_faults(terms))
    if net.capstone.threaded:
        bound, body = s.split_lets(capstone.type)
        name, type_, value = bound[0]
        entries = s.Bin("-", s.Num(0), s.app(value, "i"))
        negated = s.Bind("fun", (s.Binder(("i",), None, ""),), entries)
        handed = ((fault, text, terms.cotangent(graph)) for fault, text, graph in graphs)
        for fault, text, new in ((LOSS_SIGN, _SIGN, negated), *handed):
            changed = replace(capstone, type=s.lets([(name, type_, new), *bound[1:]], body))
            yield Mutant(fault, "", f"{capstone.name}: {text}", Written(changed))
    assert isinstance(lemma.type, s.Bin)
    derivatives = [
        (f.fault, f.text, terms.filled(f.derivative)) for f in net.loss.faults if f.derivative
    ]
    left, right = lemma.type.left, lemma.type.right
    rows = [
        ("left", LOSS_SIGN, _SIGN, replace(lemma.type, left=s.Bin("-", s.Num(0), left))),
        *(("left", fault, text, terms.row(graph=new)) for fault, text, new in graphs),
        ("right", LOSS_SIGN, _SIGN, replace(lemma.type, right=s.Bin("-", s.Num(0), right))),
        *(("right", fault, text, terms.row(derivative=new)) for fault, text, new in derivatives),
    ]
    for side, fault, text, row in rows:
        yield Mutant(fault, "", f"{lemma.name}, {side}: {text}", Written(replace(lemma, type=row)))


_SIGN = "the sign is turned"


def _graph_faults(terms: LossTerms) -> Iterator[tuple[str, str, s.Term]]:
    """Graphs that stand for the loss's own: fault, text and term."""
    loss = terms.loss
    for f in loss.faults:
        if f.graph:
            yield f.fault, f.text, terms.filled(f.graph)
    for old, new in permutations(loss.strings, 2):
        yield LOSS_STRING, f"{new} stands for {old}", terms.filled(loss.graph, {old: s.Ident(new)})
