"""The statements of one block: its cotangents, its ties, its bundle.

The cotangents are spelled from the *emitted* chain, the hypotheses and certificates from the
description; nothing here knows a net, a block or an operation by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from obligations.description import Kind, Site
from obligations.errors import InputError, ObligationsError
from obligations.lean import Declaration, Tactic, parse_signature, syntax as s
from obligations.ops import FLAG, STRINGS, Clause, definitions as file_definitions, operations
from obligations.statements.block import BlockTerms
from obligations.statements.dag import (
    INCOMING,
    unrolled,
)
from obligations.statements.obligation import Obligation, Slot
from obligations.statements.proofs import composed_graph, graph_proof, rewriting_proof
from obligations.statements.spell import fill, layer_order


class Deriver(BlockTerms):
    """The statements of one block."""

    def cotangents(self) -> list[Obligation]:
        """The definitions in chain order, then each kind's input cotangent and its tie."""
        out = self.abbreviation_declarations()
        certified = self.block.cotangents.from_certificate
        for read in self.emitted.reads.values() if self.block.cotangents.labels else ():
            site = self.emitted.at(read.cotangent, self.fwd)
            if read.cotangent != INCOMING and site not in self.block.cotangents.labels:
                raise InputError(
                    self.net.source,
                    read.cotangent_span,
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

    def _from_certificate(self) -> s.Term:
        certificate, _arguments = self.certificate(self.kind)
        given = [self.block.input] if self.kind.certificate_global else []
        return s.app(s.Proj(certificate, "backward"), *given, self.block.incoming)

    def _input(self, kind: Kind) -> list[Obligation]:
        fwd, emitted = self.section.forwards[kind.name], self.section.emitted[kind.name]
        tie = kind.input
        if tie is not None and tie.of is not None:
            return self._past_the_render(kind)
        out: list[Obligation] = []
        if not self.block.cotangents.labels and emitted.output is not None:
            name = f"{self.block.cotangents.prefix}In" if tie is None else tie.definition
            body = self.term(emitted.output, emitted, fwd, spell_out=True)
            out.append(self._define(emitted.output, self.block.input, name, body, fwd, kind))
        if tie is None or not tie.theorem or kind.certificate is None or kind.graph is None:
            return out
        if kind.graph.defined_here:
            out += composed_graph(self, kind, kind.graph)
        left = self.definition_at(tie.definition)
        proof = graph_proof(self, kind, kind.graph, fwd, emitted) if self.proofs else ()
        out.append(self._tie(kind, tie.theorem, left, proof))
        return out

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
        definition = self.named[self.last_at(label)]
        ((symbol, _),) = site.operands()
        step = site.operation.step(symbol)
        left = fill(step.lean, self.speller.symbols(site, dy=definition.applied()))
        found = s.head(left) or "another term"
        if found != tie.definition:
            raise InputError(
                self.net.source,
                tie.span or self.block.span,
                f"the step past {label} is {found}, not {tie.definition}",
            )
        out = []
        if step.defined_in_file is not None:
            out.append(step_definition(step.defined_in_file, self.block.name))
        if kind.certificate is None:
            return out
        proof = rewriting_proof(self, definition.name) if self.proofs else ()
        out.append(self._tie(kind, tie.theorem, left, proof))
        return out

    def _bound(
        self,
    ) -> tuple[list[tuple[str, s.Term | None, s.Term]], dict[str, str], dict[str, str]]:
        """The lets of a bundle, and the names they give to sites and to chain values."""
        bound: list[tuple[str, s.Term | None, s.Term]] = []
        let_names: dict[str, str] = {}
        for let_name, site in self.block.saved:
            speller = replace(self.speller, lets=let_names)
            bound.append((let_name, None, speller.value(site)))
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
        clause = next(c for c in layer.clauses if c.covers == covers)
        return self._clause(layer, clause, let_names, cotangent_lets)[0]

    def bundle(self) -> tuple[Obligation, ...]:
        """The bundle of every parameter at the cotangent it reads, and the theorem proving it.

        A block of several kinds has one bundle, if each kind's chain gives the same; one without
        parameters has none.

        Raises
        ------
        InputError
            When the chains of two kinds deliver a parameter different cotangents.
        """
        if not self.block.bundle:
            return ()
        self._one_for_every_kind()
        bound, let_names, cotangent_lets = self._bound()
        clauses: list[s.Term] = []
        proofs: list[tuple[s.Term, str | None]] = []
        slots: list[Slot] = []
        for layer in layer_order(self.fwd):
            for clause in layer.clauses:
                term, proof, slot = self._clause(layer, clause, let_names, cotangent_lets)
                clauses.append(term)
                proofs.append(proof)
                slots.append(slot)
        body = s.lets(bound, s.conjunction(clauses))
        used = s.free_names(body)
        values = self.values()
        if FLAG in used:
            values.insert(len(self.parameter_binders()), (FLAG, s.BOOL))
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
        definition_ = Declaration("def", name, groups, s.PROP, value=body)
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
                        read.cotangent_span,
                        f"{self.block.bundle} stands for {first.name} and {kind.name}, "
                        f"but {parameter} reads another cotangent in each",
                    )

    def _clause(
        self,
        site: Site,
        clause: Clause,
        let_names: Mapping[str, str],
        cotangent_lets: Mapping[str, str],
    ) -> tuple[s.Term, tuple[s.Term, str | None], Slot]:
        speller = replace(self.speller, lets=let_names)
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
        saved = {symbol: speller.value(name) for symbol, name in site.operands()}
        symbols = speller.symbols(site, **saved, cot=cot)
        # The gradient node's family is what the render says, not what the forward implies.
        source = self._family_clause(site, clause)
        form = source.form(self.net.precision.word)
        return (
            fill(form.text, symbols),
            (fill(form.proof, symbols), form.index),
            Slot(tuple(covered), site.name, read),
        )

    def _family_clause(self, site: Site, clause: Clause) -> Clause:
        operation = site.operation
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
    kept = (replace(g, names=tuple(n for n in g.names if n not in names)) for g in groups)
    return tuple(g for g in kept if g.names)


def _lemma_names(terms: Iterable[s.Term]) -> list[str]:
    """Heads of proof terms that are written without a namespace."""
    heads = dict.fromkeys(s.head(term) for term in terms)
    return [name for name in heads if name and "." not in name]


def step_definition(name: str, block: str) -> Obligation:
    """A backward step the library lacks, as the table defines it."""
    found = file_definitions()[name]
    groups, type_ = parse_signature(found.signature)
    body = fill(found.body, {})
    declaration = Declaration("noncomputable def", name, groups, type_, value=body, doc=found.doc)
    return Obligation("step", declaration, block=block)
