"""From a net to the statements of its tie file, in the file's order.

The cotangents are spelled from the *emitted* chain, the hypotheses and certificates from the
description; nothing here knows a net, a block or an operation by name. What the operation table
and the description say is all there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from obligations.description.model import Block, Kind, Net, Parameter, Site
from obligations.errors import InputError, ObligationsError
from obligations.lean import syntax as s
from obligations.lean.declaration import Declaration, Tactic
from obligations.ops import definitions as file_definitions
from obligations.ops.base import Clause
from obligations.statements.dag import (
    INCOMING,
    Emitted,
    FanIn,
    Forward,
    Step,
    forward,
    unrolled,
    weight_operand,
)
from obligations.statements.obligation import Obligation, Slot
from obligations.statements.proofs import composed_graph, graph_proof, rewriting_proof
from obligations.statements.section import Section
from obligations.statements.spell import Speller, binders, dim, fill, layer_order, vec

NAT = s.Ident("Nat")
REAL = s.Ident("ℝ")
STRINGS = ("xN", "cotN", "vN", "epsStr")
FLAG = "bf16"


@dataclass(frozen=True, slots=True)
class Definition:
    """A cotangent definition: what to apply, to which binders by name."""

    name: str
    arguments: tuple[str, ...]

    def applied(self) -> s.Term:
        """The definition at its own binders' names."""
        return s.app(self.name, *self.arguments)


class Deriver:
    """The statements of one block.

    Without ``proofs`` the ties have none: a proof can only be shaped for a chain that is right.
    """

    def __init__(self, section: Section, *, proofs: bool = True) -> None:
        self.proofs = proofs
        self.section = section
        self.net = section.net
        self.block = section.block
        self.kind = section.first
        self.fwd = section.forwards[self.kind.name]
        self.speller = Speller(self.fwd, {}, {})
        self.named: dict[str, Definition] = {}
        self.speller = Speller(self.fwd, self._abbreviations(), {})

    @property
    def emitted(self) -> Emitted:
        """The chain of the block's first kind."""
        return self.section.emitted[self.kind.name]

    @classmethod
    def plain(cls, net: Net, block: Block) -> Deriver:
        """A deriver of binders and forward terms only: its chains are not resolved."""
        forwards = {k.name: forward(block, k) for k in block.kinds}
        return cls(Section(net, block, forwards, {}))

    # -- binders ---------------------------------------------------------------------------

    def sizes(self) -> list[tuple[str, s.Term]]:
        return [(n, NAT) for n in ("N", self.block.height, self.block.width)]

    def widths(self) -> tuple[str, ...]:
        """Every implicit size a statement of this block can need, in binder order."""
        kernels = dict.fromkeys(
            str(a)
            for site in self.fwd.sites.values()
            for k, a in site.axes.items()
            if k in ("kH", "kW") and not isinstance(a, int) and getattr(a, "is_Symbol", False)
        )
        classes = (self.net.classes,) if self.block.role == "head" else ()
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
        assert site.operation is not None
        if not parameter.trained:
            return REAL
        declared = next(p for p in site.operation.parameters if p.symbol == parameter.symbol)
        return fill(declared.type, {k: dim(v) for k, v in site.axes.items()})

    def option_binders(self) -> list[tuple[str, s.Term]]:
        return [
            (o.binder, o.type)
            for o in self.net.options
            if o.where == self.block.role and self.net.settings[o.name] != o.values[0]
        ]

    def input_binder(self) -> tuple[str, s.Term]:
        return self.block.input, vec(self.block.input_shape)

    def incoming_binder(self) -> tuple[str, s.Term]:
        return self.block.incoming, vec(self.fwd.sites[self.fwd.output].shape)

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
        implicit = [(w, NAT) for w in self.widths() if w in mentioned]
        explicit = (*[n for n, _ in sizes], *strings, *[n for n, _ in values])
        groups = [
            *binders(sizes),
            *binders(implicit, "{"),
            *binders([(x, s.Ident("String")) for x in strings]),
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
            body = self.speller.without(site).value(site)
            out.append(
                self.obligation(
                    "value",
                    Declaration(
                        "noncomputable def",
                        name,
                        groups,
                        vec(self.fwd.sites[site].shape),
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
            section="",
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
            left, right = (s.app(self.term(o, emitted, fwd), i) for o in node.operands)
            return s.Bind("fun", (s.Binder(("i",), None, ""),), s.Bin("+", left, right))
        return self.step(node, self.term(node.incoming, emitted, fwd), fwd)

    def step(self, node: Step, dy: s.Term, fwd: Forward) -> s.Term:
        """The Lean term of one resolved operation at the cotangent ``dy``."""
        speller = Speller(fwd, self.speller.definitions, self.speller.lets)
        site = fwd.sites[node.site]
        symbols = speller.symbols(site, dy=dy)
        if node.saved is not None:
            symbols["x"] = speller.value(node.saved)
        slot = weight_operand(node.operation)
        if node.weight is not None and slot is not None:
            symbols[slot] = speller.parameter(fwd.parameters[node.weight])
        lean = node.operation.backward.lean
        return fill(lean, symbols)

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
            return [
                n.name for n in self.emitted.nodes.values() if n.at in labelled and self._labels(n)
            ]
        read = {r.cotangent for r in self.emitted.reads.values()}
        return [n for n in self.emitted.nodes if n in read]

    def _labels(self, node: Step | FanIn) -> bool:
        """Whether ``node`` is the last chain value at its site (a site may have two)."""
        same = [n.name for n in self.emitted.nodes.values() if n.at == node.at]
        return same[-1] == node.name

    def last_at(self, site: str) -> str:
        """The chain value that is the whole cotangent at a site: the last one there."""
        found = [n.name for n in self.emitted.nodes.values() if n.at == site]
        if not found:
            raise ObligationsError(f"the chain of {self.block.name} has no cotangent at {site}")
        return found[-1]

    def chain_at(self, site: str) -> s.Term:
        """The chain's cotangent at a site, every step spelled out."""
        return self.term(self.last_at(site), self.emitted, self.fwd, spell_out=True)

    def cotangents(self) -> list[Obligation]:
        """The definitions in chain order, then each kind's input cotangent and its tie."""
        out = self.abbreviation_declarations()
        certified = self.block.cotangents.from_certificate
        for read in self.emitted.reads.values() if self.block.cotangents.labels else ():
            site = self.emitted.at(read.cotangent, self.fwd)
            if read.cotangent != INCOMING and site not in self.block.cotangents.labels:
                raise InputError(
                    self.net.source,
                    read.span,
                    f"{read.parameter} reads the cotangent at {site}, which has no name: the line "
                    f"`cotangents {self.block.cotangents.prefix}` leaves it out",
                )
        for name in self._named_nodes():
            node = self.emitted.nodes[name]
            label = self.block.cotangents.labels.get(node.at)
            if label is not None and label in certified:
                body = self._from_certificate()
            elif name == self.emitted.output and not self.block.cotangents.labels:
                continue
            else:
                body = self.term(name, self.emitted, self.fwd, spell_out=True)
            out.append(self._define(name, node.at, self.cotangent_name(node), body, self.fwd))
        for kind in self.block.kinds:
            out += self._input(kind)
        return out

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
        shape = self.block.input_shape if site == self.block.input else fwd.sites[site].shape
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
        implicit = [(w, NAT) for w in kind.widths]
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

    def _from_certificate(self) -> s.Term:
        certificate, _arguments = self.certificate(self.kind)
        x, dy = self.block.input, self.block.incoming
        if self.kind.certificate_global:
            return s.App(s.Proj(certificate, "backward"), (s.Ident(x), s.Ident(dy)))
        return s.App(s.Proj(certificate, "backward"), (s.Ident(dy),))

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
        out = {}
        for hypothesis in self.block.positive:
            if not hypothesis.predicate:
                for _, site in hypothesis.fields:
                    out[self.epsilon(site).lean] = hypothesis.binder
        return out

    def epsilon(self, site: str) -> Parameter:
        """The untrained field of a BatchNorm site."""
        return next(p for p in self.fwd.sites[site].parameters if not p.trained)

    # -- input ties ------------------------------------------------------------------------

    def _input(self, kind: Kind) -> list[Obligation]:
        fwd, emitted = self.section.forwards[kind.name], self.section.emitted[kind.name]
        tie = kind.input
        out: list[Obligation] = []
        if tie is not None and tie.of is not None:
            out += self._past_the_render(kind)
            return out
        if not self.block.cotangents.labels and emitted.output is not None:
            name = f"{self.block.cotangents.prefix}In" if tie is None else tie.definition
            body = self.term(emitted.output, emitted, fwd, spell_out=True)
            out.append(self._define(emitted.output, self.block.input, name, body, fwd, kind))
        if tie is None or not tie.theorem or kind.certificate is None or kind.graph is None:
            return out
        if kind.graph.defined_here:
            out += composed_graph(self, kind)
        left = self.definition_at(tie.definition)
        proof = graph_proof(self, kind, fwd, emitted) if self.proofs else ()
        out.append(self._tie(kind, tie.theorem, left, proof))
        return out

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

    def _tie(self, kind: Kind, name: str, left: s.Term, proof: tuple[Tactic, ...]) -> Obligation:
        certificate, _ = self.certificate(kind)
        right = s.App(s.Proj(certificate, "backward"), (s.Ident(self.block.incoming),))
        declaration = Declaration(
            "theorem", name, self.tie_binders(), s.Bin("=", left, right), proof=proof
        )
        return self.obligation("tie", self.specialise(declaration, kind), kinds=(kind.name,))

    def _past_the_render(self, kind: Kind) -> list[Obligation]:
        """A stem's tie: one step the render does not emit, applied to its last cotangent."""
        tie = kind.input
        assert tie is not None
        assert tie.of is not None
        label = next(k for k, v in self.block.cotangents.labels.items() if v == tie.of)
        site = self.fwd.sites[label]
        assert site.operation is not None
        definition = self.named[self.last_at(label)]
        symbols = self.speller.symbols(site, dy=definition.applied())
        left = fill(site.operation.backward.lean, symbols)
        head = left.fn if isinstance(left, s.App) else left
        if not isinstance(head, s.Ident) or head.name != tie.definition:
            found = head.name if isinstance(head, s.Ident) else "another term"
            raise InputError(
                self.net.source,
                tie.span or self.block.span,
                f"the step past {label} is {found}, not {tie.definition}",
            )
        out = []
        if site.operation.backward.defined_in_file is not None:
            out.append(step_definition(site.operation.backward.defined_in_file, self.block.name))
        if kind.certificate is None:
            return out
        proof = rewriting_proof(self, definition.name) if self.proofs else ()
        out.append(self._tie(kind, tie.theorem, left, proof))
        return out

    # -- bundles ---------------------------------------------------------------------------

    def clause_form(self, clause: Clause) -> tuple[str, str, str | None]:
        """Template, proof and written-out index of a clause under the precision setting."""
        if self.net.settings["precision"] == "switch" and clause.switch is not None:
            assert clause.proof_switch is not None
            return clause.switch, clause.proof_switch, clause.index_switch
        return clause.f32, clause.proof_f32, clause.index_f32

    def _bound(
        self,
    ) -> tuple[list[tuple[str, s.Term | None, s.Term]], dict[str, str], dict[str, str]]:
        """The lets of a bundle, and the names they give to sites and to chain values."""
        saved = list(self.block.saved)
        bound: list[tuple[str, s.Term | None, s.Term]] = []
        let_names: dict[str, str] = {}
        for let_name, site in saved:
            speller = self.speller.with_lets(let_names)
            bound.append((let_name, None, self._let_value(speller, site)))
            let_names = {**let_names, site: let_name}
        cotangent_lets: dict[str, str] = {}
        taken = {*STRINGS, *let_names.values(), *(n for n, _ in self.values())}
        for name in self._named_nodes():
            if name not in {r.cotangent for r in self.emitted.reads.values()}:
                continue
            definition = self.named[name]
            label = definition.name.removeprefix(self.block.cotangents.prefix)
            let_name = f"cot{label}"
            while let_name in taken:
                let_name += "'"
            taken.add(let_name)
            bound.append((let_name, None, definition.applied()))
            cotangent_lets[name] = let_name
        return bound, let_names, cotangent_lets

    def clause_at(self, site: str, covers: tuple[str, ...]) -> s.Term:
        """The clause of a bundle that ties these parameters (by symbol) of a site."""
        _, let_names, cotangent_lets = self._bound()
        layer = self.fwd.sites[site]
        assert layer.operation is not None
        clause = next(c for c in layer.operation.clauses if c.covers == covers)
        return self._clause(layer, clause, let_names, cotangent_lets)[0]

    def bundle(self) -> tuple[Obligation, Obligation]:
        """The bundle of every parameter at the cotangent it reads, and the theorem proving it.

        A block of several kinds has one bundle, if each kind's chain gives the same.

        Raises
        ------
        InputError
            When the chains of two kinds deliver a parameter different cotangents.
        """
        self._one_for_every_kind()
        bound, let_names, cotangent_lets = self._bound()
        clauses: list[s.Term] = []
        proofs: list[tuple[s.Term, str | None]] = []
        slots: list[Slot] = []
        for layer in layer_order(self.fwd):
            assert layer.operation is not None
            for clause in layer.operation.clauses:
                term, proof, slot = self._clause(layer, clause, let_names, cotangent_lets)
                clauses.append(term)
                proofs.append(proof)
                slots.append(slot)
        body = s.lets(bound, s.conjunction(clauses))
        used = s.free_names(body)
        values = self.values()
        flagged = FLAG in used
        if flagged:
            position = len(self.parameter_binders())
            values.insert(position, (FLAG, s.Ident("Bool")))
        strings = tuple(x for x in STRINGS if x in used)
        groups, arguments = self.frame(values, None, strings)
        pins = {k: s.Num(v) for k, v in self.block.bundle_pins.items()}
        if pins:
            groups = tuple(
                replace(g, type=None if g.type is None else s.substitute(g.type, pins))
                for g in _without(groups, set(pins))
            )
            body = s.substitute(body, pins)
        name, theorem = self.block.bundle, self.block.bundle_theorem
        definition_ = Declaration("def", name, groups, s.Ident("Prop"), value=body)
        intros = " ".join(b[0] for b in bound)
        proof_lines: tuple[Tactic, ...]
        if any(index is not None for _, index in proofs):
            holes = s.Anon(tuple(s.Hole("?_") for _ in proofs))
            bullets = [
                Tactic(("· exact", t))
                if index is None
                else Tactic((f"· intro {index}",), (Tactic(("exact", t)),))
                for t, index in proofs
            ]
            proof_lines = (
                Tactic((f"unfold {name}",)),
                Tactic((f"intro {intros}",)),
                Tactic(("refine", holes)),
                *bullets,
            )
        else:
            items = tuple(t for t, _ in proofs)
            whole = s.Anon(items) if len(items) > 1 else items[0]
            proof_lines = (Tactic((f"unfold {name}",)), Tactic(("exact", whole)))
        theorem_ = Declaration(
            "theorem", theorem, groups, s.app(name, *arguments), proof=proof_lines
        )
        notes = {"lemmas": " ".join(_lemma_names(t for t, _ in proofs))}
        return (
            self.obligation("bundle", definition_, slots=tuple(slots), notes=notes),
            self.obligation("bundle proof", theorem_, slots=tuple(slots), notes=notes),
        )

    def _one_for_every_kind(self) -> None:
        """Refuse kinds whose chains differ in what a parameter reads, however far back."""
        first = self.kind
        wanted = {p: unrolled(self.emitted, r.cotangent) for p, r in self.emitted.reads.items()}
        for kind in self.block.kinds[1:]:
            emitted = self.section.emitted[kind.name]
            for parameter, read in emitted.reads.items():
                if unrolled(emitted, read.cotangent) != wanted[parameter]:
                    raise InputError(
                        self.net.source,
                        read.span,
                        f"{self.block.bundle} stands for {first.name} and {kind.name}, "
                        f"but {parameter} reads another cotangent in each",
                    )

    def _let_value(self, speller: Speller, site: str) -> s.Term:
        return speller.value(site)

    def _clause(
        self,
        site: Site,
        clause: Clause,
        let_names: Mapping[str, str],
        cotangent_lets: Mapping[str, str],
    ) -> tuple[s.Term, tuple[s.Term, str | None], Slot]:
        speller = self.speller.with_lets(let_names)
        parameters = {p.symbol: p for p in site.parameters}
        covered = [parameters[c].render for c in clause.covers]
        reads = {self.emitted.reads[c].cotangent for c in covered}
        if len(reads) != 1:
            raise ObligationsError(
                f"{' and '.join(covered)} read {' and '.join(sorted(reads))}: "
                f"one clause ties them, at one cotangent"
            )
        read = reads.pop()
        cot = (
            s.Ident(cotangent_lets[read])
            if read in cotangent_lets
            else self.term(read, self.emitted, self.fwd)
        )
        symbols = speller.symbols(site, x=speller.value(site.inputs[0]), cot=cot)
        # The gradient node's family is what the render says, not what the forward implies.
        source = self._family_clause(site, clause)
        template, proof, index = self.clause_form(source)
        return (
            fill(template, symbols),
            (fill(proof, symbols), index),
            Slot(tuple(covered), site.name, read),
        )

    def _family_clause(self, site: Site, clause: Clause) -> Clause:
        from obligations.ops import operations

        operation = site.operation
        assert operation is not None
        family = self.emitted.family
        if operation.padding is None or family is None or family == operation.padding:
            return clause
        other = operations()[(operation.word, operation.stride, family)]
        found = next((c for c in other.clauses if c.covers == clause.covers), None)
        if found is None:
            raise ObligationsError(
                f"the library has no {family} gradient node of {' and '.join(clause.covers)} "
                f"for a {operation.noun or operation.word}"
            )
        return found


def _without(groups: tuple[s.Binder, ...], names: set[str]) -> tuple[s.Binder, ...]:
    out = []
    for group in groups:
        kept = tuple(n for n in group.names if n not in names)
        if kept:
            out.append(replace(group, names=kept))
    return tuple(out)


def _lemma_names(terms: Iterable[s.Term]) -> list[str]:
    """Heads of proof terms that are written without a namespace."""
    out: dict[str, None] = {}
    for term in terms:
        head = term.fn if isinstance(term, s.App) else term
        if isinstance(head, s.Ident) and "." not in head.name:
            out[head.name] = None
    return list(out)


def step_definition(name: str, block: str) -> Obligation:
    """A backward step the library lacks, as the table defines it."""
    from obligations.lean.parse import parse_signature

    found = file_definitions()[name]
    groups, type_ = parse_signature(found.signature)
    body = fill(found.body, {})
    declaration = Declaration("noncomputable def", name, groups, type_, value=body, doc=found.doc)
    return Obligation("step", declaration, section="", block=block)


# -- the whole net -----------------------------------------------------------------------------
