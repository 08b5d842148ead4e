"""The terms of one block's statements: binders, saved values, chain steps, hypotheses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

from obligations.description import Block, Kind, Net, Parameter
from obligations.errors import ObligationsError
from obligations.lean import Declaration, syntax as s
from obligations.statements.dag import (
    INCOMING,
    Emitted,
    FanIn,
    Forward,
    Step,
    forward,
)
from obligations.statements.obligation import Obligation
from obligations.statements.section import Section
from obligations.statements.spell import Speller, added, binders, dim, fill, vec


@dataclass(frozen=True, slots=True)
class Definition:
    """A cotangent definition: what to apply, to which binders by name."""

    name: str
    arguments: tuple[str, ...]

    def applied(self) -> s.Term:
        """The definition at its own binders' names."""
        return s.app(self.name, *self.arguments)


class BlockTerms:
    """What the statements of one block are made of.

    Without ``proofs`` the ties have none: a proof can only be shaped for a chain that is right.
    """

    def __init__(self, section: Section, *, proofs: bool = True) -> None:
        self.proofs = proofs
        self.section = section
        self.net = section.net
        self.block = section.block
        self.kind = section.first
        self.fwd = section.forwards[self.kind.name]
        self.named: dict[str, Definition] = {}
        self.speller = Speller(self.fwd, self._abbreviations(), {})

    @property
    def emitted(self) -> Emitted:
        """The chain of the block's first kind."""
        return self.section.emitted[self.kind.name]

    @classmethod
    def plain(cls, net: Net, block: Block) -> Self:
        """A deriver of binders and forward terms only: its chains are not resolved."""
        forwards = {k.name: forward(block, k) for k in block.kinds}
        return cls(Section(net, block, forwards, {}))

    # -- binders ---------------------------------------------------------------------------

    def sizes(self) -> list[tuple[str, s.Term]]:
        return [(n, s.NAT) for n in ("N", *self.block.space)]

    def widths(self) -> tuple[str, ...]:
        """Every implicit size a statement of this block can need, in binder order."""
        kernels = dict.fromkeys(
            str(site.axes[k])
            for site in self.fwd.sites.values()
            for k in (site.operation.kernel.axes if site.operation.kernel else ())
            if not isinstance(site.axes[k], int)
        )
        classes = (self.net.classes,) if self.block.gives_logits else ()
        return (*self.block.widths, *classes, *kernels)

    def parameter_binders(self) -> list[tuple[str, s.Term]]:
        """The record, or the loose parameters with their types."""
        if self.block.record is not None:
            name, type_ = self.block.record
            return [(name, s.app(type_, *self.block.widths))]
        by_field = {p.field: p for x in self.fwd.sites.values() for p in x.parameters}
        return [
            (name, self.parameter_type(by_field[field]))
            for group in self.block.loose
            for name, field in group
        ]

    def parameter_type(self, parameter: Parameter) -> s.Term:
        site = self.fwd.sites[parameter.site]
        return fill(parameter.of.type, {k: dim(v) for k, v in site.axes.items()})

    def option_binders(self) -> list[tuple[str, s.Term]]:
        return [(o.binder, o.type) for o in self.net.on if o.where == self.block.name]

    def input_binder(self) -> tuple[str, s.Term]:
        return self.block.input, vec(self.block.input_shape)

    def incoming_binder(self) -> tuple[str, s.Term]:
        return self.block.incoming, vec(self.fwd.shape(self.fwd.output))

    def values(self, incoming: bool = True) -> list[tuple[str, s.Term]]:
        """Explicit binders after the sizes, in the order every statement has them."""
        out = [*self.parameter_binders(), *self.option_binders(), self.input_binder()]
        return [*out, self.incoming_binder()] if incoming else out

    def frame(
        self,
        values: list[tuple[str, s.Term]],
        used: set[str] | None,
        strings: tuple[str, ...] = (),
    ) -> tuple[tuple[s.Binder, ...], tuple[str, ...]]:
        """Binder groups of a statement and the names it is applied to.

        With ``used`` (the free names of a body), a loose block keeps only the binders that its
        body or the kept binders' types need; a record's statements keep all.
        """
        sizes = self.sizes()
        if used is not None and self.block.record is None:
            values = [(n, t) for n, t in values if n in used]
            # Sizes are taken only for what the body or a type mentions; strings come after them.
            mentioned = used.union(*(s.free_names(t) for _, t in values))
            sizes = [(n, t) for n, t in sizes if n in mentioned]
        mentioned = set().union(*(s.free_names(t) for _, t in values))
        implicit = [(w, s.NAT) for w in self.widths() if w in mentioned]
        explicit = (*[n for n, _ in sizes], *strings, *[n for n, _ in values])
        groups = [
            *binders(sizes),
            *binders(implicit, "{"),
            *binders([(x, s.STRING) for x in strings]),
            *binders(values),
        ]
        return tuple(groups), explicit

    # -- saved values ----------------------------------------------------------------------

    def _abbreviations(self) -> dict[str, s.Term]:
        p = [n for n, _ in self.parameter_binders()]
        sizes = [n for n, _ in self.sizes()]
        return {
            site: s.app(name, *sizes, *p, self.block.input)
            for site, name in self.block.abbreviations.items()
        }

    def abbreviation_declarations(self) -> list[Obligation]:
        out = []
        for site, name in self.block.abbreviations.items():
            groups, _ = self.frame(self.values(incoming=False), None)
            others = {k: v for k, v in self.speller.definitions.items() if k != site}
            body = replace(self.speller, definitions=others).value(site)
            out.append(
                self.obligation(
                    "value",
                    Declaration(
                        "noncomputable def",
                        name,
                        groups,
                        vec(self.fwd.shape(site)),
                        value=body,
                        attributes=("reducible",),
                    ),
                    site=site,
                )
            )
        return out

    def obligation(self, kind, declaration: Declaration, **more: object) -> Obligation:  # type: ignore[no-untyped-def]
        return Obligation(
            kind,
            declaration,
            block=self.block.name,
            kinds=more.pop("kinds", tuple(k.name for k in self.block.kinds)),  # type: ignore[arg-type]
            **more,  # type: ignore[arg-type]
        )

    # -- cotangents ------------------------------------------------------------------------

    def term(self, name: str, emitted: Emitted, fwd: Forward, *, spell_out: bool = False) -> s.Term:
        """The chain value ``name``: its definition where it has one, else its step spelled out."""
        if name == INCOMING:
            return s.Ident(self.block.incoming)
        if name in self.named and not spell_out:
            return self.named[name].applied()
        node = emitted.nodes[name]
        if isinstance(node, FanIn):
            i = s.Ident("i")
            total = [s.app(self.term(o, emitted, fwd), i) for o in node.operands]
            return s.Bind("fun", (s.Binder(("i",), None, ""),), added(total))
        return self.step(node, self.term(node.incoming, emitted, fwd), fwd)

    def step(self, node: Step, dy: s.Term, fwd: Forward) -> s.Term:
        """The Lean term of one resolved operation at the cotangent ``dy``."""
        speller = Speller(fwd, self.speller.definitions, self.speller.lets)
        symbols = speller.symbols(fwd.layer(node.site), dy=dy)
        symbols |= {symbol: speller.value(name) for symbol, name in node.saved.items()}
        for symbol, name in node.weights.items():
            symbols[symbol] = speller.parameter(fwd.parameters[name])
        return fill(node.step.lean, symbols)

    def cotangent_name(self, node: Step | FanIn) -> str:
        names = self.block.cotangents
        label = names.labels.get(node.at)
        if label is None:
            label = node.at[:1].upper() + node.at[1:]
        return names.prefix + label

    def _named_nodes(self) -> list[str]:
        """Chain values that get a definition: what a parameter reads, and at the ends all."""
        if self.block.cotangents.labels:
            labelled = self.block.cotangents.labels
            nodes = (n for n in self.emitted.nodes.values() if n.at in labelled)
            return [n.name for n in nodes if self.last_at(n.at) == n.name]
        read = {r.cotangent for r in self.emitted.reads.values()}
        return [n for n in self.emitted.nodes if n in read]

    def last_at(self, site: str) -> str:
        """The chain value that is the whole cotangent at a site: the last one there."""
        found = [n.name for n in self.emitted.nodes.values() if n.at == site]
        if not found:
            raise ObligationsError(f"the chain of {self.block.name} has no cotangent at {site}")
        return found[-1]

    def chain_at(self, site: str) -> s.Term:
        """The chain's cotangent at a site, every step spelled out."""
        return self.term(self.last_at(site), self.emitted, self.fwd, spell_out=True)

    def _define(
        self,
        chain: str,
        site: str,
        name: str,
        body: s.Term,
        fwd: Forward,
        kind: Kind | None = None,
    ) -> Obligation:
        groups, arguments = self.frame(self.values(), s.free_names(body))
        self.named[chain] = Definition(name, arguments)
        shape = fwd.shape(site)
        declaration = Declaration("noncomputable def", name, groups, vec(shape), value=body)
        if kind is not None:
            declaration = self.specialise(declaration, kind)
        kinds = tuple(k.name for k in self.block.kinds) if kind is None else (kind.name,)
        return self.obligation("cotangent", declaration, chain=chain, site=site, kinds=kinds)

    def specialise(self, declaration: Declaration, kind: Kind) -> Declaration:
        """A declaration at a kind's own width pattern: ``{ic mid oc}`` becomes ``{c mid}``."""
        pattern = {
            w: dim(d) for w, d in zip(self.block.widths, kind.pattern, strict=True) if str(d) != w
        }
        if not pattern:
            return declaration
        entries = [(n, g.type, g.kind) for g in declaration.binders for n in g.names]
        widths = set(self.block.widths)
        implicit = [(w, s.NAT) for w in kind.widths]
        out: list[s.Binder] = []
        run: list[tuple[str, s.Term]] = []
        for name, type_, bracket in entries:
            assert type_ is not None
            if bracket == "{":
                if name in widths and implicit:
                    out += binders(run)
                    run = []
                    out += binders(implicit, "{")
                    implicit = []
                continue
            run.append((name, s.substitute(type_, pattern)))
        out += binders(run)
        # Sizes and values are not merged into one group across the implicit binders.
        return replace(
            declaration,
            binders=tuple(out),
            type=s.substitute(declaration.type, pattern),
            value=None if declaration.value is None else s.substitute(declaration.value, pattern),
        )

    def certificate(self, kind: Kind) -> tuple[s.Term, tuple[str, ...]]:
        """The certificate of a kind at the names its statements bind."""
        if kind.certificate is None:
            raise ObligationsError(f"{kind.name} has no certificate")
        arguments = [n for n, _ in self.sizes()]
        if self.block.record is not None:
            arguments.append(self.block.record[0])
            arguments += [h.binder for h in self.block.positive]
        else:
            proofs = self._positivity()
            for name, _ in self.parameter_binders():
                arguments.append(name)
                if name in proofs:
                    arguments.append(proofs[name])
        arguments += [n for n, _ in self.option_binders()]
        if not kind.certificate_global:
            arguments.append(self.block.input)
            if self.block.smooth is not None:
                arguments.append(self.block.smooth.binder)
        return s.app(kind.certificate, *arguments), tuple(arguments)

    def _positivity(self) -> dict[str, str]:
        """For loose parameters: the proof binder of each ε, by the ε's binder."""
        return {
            self.epsilon(site).lean: hypothesis.binder
            for hypothesis in self.block.positive
            if not hypothesis.predicate
            for _, site in hypothesis.fields
        }

    def epsilon(self, site: str) -> Parameter:
        """The untrained field of a BatchNorm site."""
        return next(p for p in self.fwd.sites[site].parameters if not p.trained)

    # -- input ties ------------------------------------------------------------------------

    def definition_at(self, name: str) -> s.Term:
        """A cotangent definition at its own binders' names."""
        found = next((d for d in self.named.values() if d.name == name), None)
        if found is None:
            raise ObligationsError(f"the chain of {self.block.name} does not reach {name}")
        return found.applied()

    def hypothesis_binders(self) -> tuple[list[tuple[str, s.Term]], list[tuple[str, s.Term]]]:
        """Positivity of a record (after it) and smoothness (last), with their types."""
        sizes = [n for n, _ in self.sizes()]
        positive = []
        if self.block.record is not None:
            p = self.block.record[0]
            positive = [(h.binder, s.app(h.predicate, p)) for h in self.block.positive]
        smooth = []
        if self.block.smooth is not None:
            h = self.block.smooth
            if self.block.record is not None:
                arguments = [*sizes, self.block.record[0], self.block.input]
            else:
                covered = self._smooth_parameters()
                arguments = [*sizes, *covered, self.block.input]
            smooth = [(h.binder, s.app(h.predicate, *arguments))]
        return positive, smooth

    def _smooth_parameters(self) -> list[str]:
        """Loose parameters up to the last site the smoothness speaks of."""
        assert self.block.smooth is not None
        reached: set[str] = set()
        last = {site for _, site in self.block.smooth.fields}
        for site in self.fwd.sites.values():
            reached |= {p.lean for p in site.parameters}
            last.discard(site.name)
            if not last:
                break
        return [n for n, _ in self.parameter_binders() if n in reached]

    def tie_binders(self, incoming: bool = True) -> tuple[s.Binder, ...]:
        """Binders of a tie: hypotheses after what they speak of."""
        positive, smooth = self.hypothesis_binders()
        proofs = self._positivity() if self.block.record is None else {}
        entries: list[tuple[str, s.Term]] = []
        for name, type_ in self.values(incoming):
            entries.append((name, type_))
            if self.block.record is not None and name == self.block.record[0]:
                entries += positive
            if name in proofs:
                entries.append((proofs[name], s.Bin("<", s.Num(0), s.Ident(name))))
        entries += smooth
        groups, _ = self.frame(entries, None)
        return groups
