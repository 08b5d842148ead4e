"""The statements about a whole net: its capstone, and the loss row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from obligations.description import Kind, Layer, Net
from obligations.errors import ObligationsError
from obligations.lean import Declaration, Tactic, syntax as s
from obligations.ops import FLAG, SEED, STRINGS
from obligations.statements.block import Definition
from obligations.statements.deriver import Deriver
from obligations.statements.obligation import Obligation
from obligations.statements.spell import binders, fill, vec
from obligations.statements.thread import Threading


class WholeNetTerms:
    """Terms of the whole net: weights, prefixes and block-output cotangents at literal sizes."""

    def __init__(self, net: Net, derivers: Mapping[str, Deriver]) -> None:
        self.net = net
        self.derivers = derivers

    def sizes(self, layer: Layer) -> dict[str, s.Term]:
        """A layer's widths, rows and columns by its block's symbols."""
        block, kind = self.net.block_of(layer.kind)
        own = dict(zip(kind.widths, layer.widths, strict=True))
        widths = {w: own[str(p)] for w, p in zip(block.widths, kind.pattern, strict=True)}
        space = zip(block.space, layer.space, strict=True)
        return {name: s.Num(size) for name, size in (*widths.items(), *space)}

    def options(self) -> list[tuple[str, s.Term]]:
        """Binders of the options that are on, at the net's literal widths."""
        out = []
        for option in self.net.on:
            layer = next(x for x in self.net.layers if x.block == option.where)
            out.append((option.binder, s.substitute(option.type, self.sizes(layer))))
        return out

    def input_type(self) -> s.Term:
        """The type of the net's input, as the first layer writes it."""
        first = self.net.layers[0]
        return s.substitute(vec(self.net.blocks[first.block].input_shape), self.sizes(first))

    def before(self, layer_index: int) -> s.Term:
        """The input of layer ``layer_index + 1``."""
        return s.app(f"{self.net.forward.prefix}{layer_index}", "N", "w", self.net.input)

    def forward(self) -> s.Term:
        """The logits of the net."""
        name = self.net.forward.name
        for option in self.net.on:
            name = self.net.forward.variants.get(option.name, name)
        return s.app(name, "N", "w", *(o.binder for o in self.net.on), self.net.input)

    def logits_type(self) -> s.Term:
        """The type of the logits and of their cotangent."""
        return s.app("Vec", s.Bin("*", s.Ident("N"), s.Ident(self.net.classes)))

    def arguments(
        self, layer: str, names: Iterable[str], values: Mapping[str, s.Term]
    ) -> list[s.Term]:
        """What a block's statement is applied to at one layer, by its binders' names."""
        found = next(x for x in self.net.layers if x.name == layer)
        block = self.net.blocks[found.block]
        space = zip(block.space, found.space, strict=True)
        table: dict[str, s.Term] = {name: s.Num(size) for name, size in space}
        if block.record is not None:
            table[block.record[0]] = s.Ident(f"w.{layer}")
        for group in block.loose:
            table |= {name: s.Ident(f"w.{field}") for name, field in group}
        table |= values
        return [table.get(n, s.Ident(n)) for n in names]


def _input_definition(deriver: Deriver, kind: Kind) -> Definition:
    """The definition of the cotangent a block hands to the one before it."""
    emitted = deriver.section.emitted[kind.name]
    if emitted.output is None:
        raise ObligationsError(f"the chain of {kind.name} hands on no cotangent")
    return deriver.named[emitted.output]


def capstone(net: Net, derivers: Mapping[str, Deriver], thread: Threading) -> Obligation:
    """The whole-net theorem: the cotangents handed down, and every layer's bundle at them.

    ``derivers`` have derived their cotangents, so that these have names.
    """
    whole = WholeNetTerms(net, derivers)
    cap = net.capstone
    k = net.classes
    bound: list[tuple[str, s.Term | None, s.Term]] = []
    if cap.threaded:
        bound.append((SEED, whole.logits_type(), LossTerms(net).cotangent()))
    blocks = {x.name: x.block for x in net.layers}
    for handed in thread.handed:
        deriver = derivers[blocks[handed.layer]]
        block, kind = net.block_of(handed.kind)
        definition = _input_definition(derivers[block.name], kind)
        values = {
            deriver.block.input: whole.before(handed.before),
            deriver.block.incoming: s.Ident(handed.incoming),
        }
        arguments = whole.arguments(handed.layer, definition.arguments, values)
        bound.append((handed.name, None, s.app(definition.name, *arguments)))
    clauses: list[s.Term] = []
    proofs: list[s.Term] = []
    taken: dict[str, list[str]] = {}
    for tied in thread.tied:
        deriver = derivers[blocks[tied.layer]]
        name = deriver.block.name
        if name not in taken:
            bundle, _ = deriver.bundle()
            groups = bundle.declaration.binders
            taken[name] = [n for g in groups if g.kind == "(" for n in g.names]
        names = taken[name]
        x = s.Ident(net.input) if tied.before is None else whole.before(tied.before)
        values = {deriver.block.input: x, deriver.block.incoming: s.Ident(tied.incoming)}
        arguments = whole.arguments(tied.layer, names, values)
        clauses.append(s.app(deriver.block.bundle, *arguments))
        proofs.append(s.app(deriver.block.bundle_theorem, *arguments))
    body = s.lets(bound, s.conjunction(clauses))
    used = s.free_names(body)
    entries = [(k, s.NAT)]
    strings = [(x, s.STRING) for x in STRINGS if x in used]
    loss = LossTerms(net)
    constants = loss.constants() if cap.threaded else ()
    last = loss.data() if cap.threaded else binders([(SEED, whole.logits_type())])
    flag = [(FLAG, s.BOOL)] if FLAG in used else []
    groups = (
        *binders([("N", s.NAT)]),
        *binders(entries, "{"),
        *binders(strings),
        *constants,
        *binders([("w", s.app(net.record, k))]),
        *binders(flag),
        *binders(whole.options()),
        *binders([(net.input, whole.input_type())]),
        *last,
    )
    intros = " ".join(b[0] for b in bound)
    declaration = Declaration(
        "theorem",
        cap.name,
        groups,
        body,
        proof=(Tactic((f"intro {intros}",)), Tactic(("exact", s.Anon(tuple(proofs))))),
    )
    return Obligation("capstone", declaration)


class LossTerms:
    """The terms of a net's loss at the net's logits."""

    def __init__(self, net: Net) -> None:
        self.loss = net.loss
        self.classes = s.Ident(net.classes)
        logits = WholeNetTerms(net, {}).forward()
        self._symbols: dict[str, s.Term] = {"K": self.classes}
        self._symbols["logits"] = self.filled(self.loss.rows, {"z": logits})

    def filled(self, template: str, more: Mapping[str, s.Term] | None = None) -> s.Term:
        """A template of the loss."""
        return fill(template, {**self._symbols, **(more or {})})

    def cotangent(self, graph: s.Term | None = None) -> s.Term:
        """What the loss sends to the logits; ``graph`` in the place of its own."""
        return self.filled(self.loss.cotangent, {"graph": graph or self.filled(self.loss.graph)})

    def row(self, graph: s.Term | None = None, derivative: s.Term | None = None) -> s.Term:
        """That an entry of the graph is the derivative; others in the place of its own two."""
        sides = {
            "graph": graph or self.filled(self.loss.graph),
            "derivative": derivative or self.filled(self.loss.derivative),
        }
        return self.filled(self.loss.row, sides)

    def constants(self) -> tuple[s.Binder, ...]:
        """The binders before the weights."""
        strings = ((x, "String") for x in self.loss.strings)
        return self.binders([*strings, *((g.name, g.type) for g in self.loss.constants)])

    def data(self) -> tuple[s.Binder, ...]:
        """The binders after the net's input."""
        return self.binders((g.name, g.type) for g in self.loss.data)

    def binders(self, named: Iterable[tuple[str, str]]) -> tuple[s.Binder, ...]:
        """Binders whose types are templates of the loss."""
        return binders([(name, self.filled(template)) for name, template in named])


def loss_row(net: Net) -> Obligation:
    """The loss row: the emitted loss cotangent is the derivative of the loss."""
    whole, terms = WholeNetTerms(net, {}), LossTerms(net)
    groups = (
        *binders([("N", s.NAT)]),
        *binders([(net.classes, s.NAT)], "{"),
        *terms.binders(net.loss.of_sizes),
        *terms.constants(),
        *binders([("w", s.app(net.record, net.classes))]),
        *binders(whole.options()),
        *binders([(net.input, whole.input_type())]),
        *terms.data(),
        *binders([("n", s.app("Fin", "N"))]),
        *binders([("j", s.app("Fin", net.classes))]),
        *terms.binders(net.loss.of_data),
    )
    declaration = Declaration(
        "theorem",
        net.capstone.loss,
        groups,
        terms.row(),
        proof=(Tactic(("exact", terms.filled(net.loss.proof))),),
    )
    return Obligation("loss", declaration)
