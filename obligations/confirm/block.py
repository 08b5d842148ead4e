"""The obligations of one block, evaluated at sampled points of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from obligations.confirm.slots import (
    COTANGENT,
    Expected,
    clause_difference,
    expected_clauses,
    misplaced,
)
from obligations.confirm.tally import Tally, found_zero, guarded, where
from obligations.description import Net
from obligations.lean import Call, Constant, Environment, elaborate_declaration, resolve
from obligations.ledger import BOUND, Verdict, Zero
from obligations.ops import FLAG, STRINGS, Array
from obligations.shadow import (
    Evaluator,
    Leaf,
    Point,
    Record,
    leaves,
    net_values,
    node_magnitude,
    node_value,
    parameter_gradient,
    read_cotangent,
    relative_error,
    rng_for,
    run,
    sample,
    site_gradient,
)
from obligations.statements import Derived, Deriver, Obligation, Section, block_zero_reason, vec


def sizes_text(section: Section, point: Point) -> str:
    """``Id N=2 c=3 h=2 w=4``."""
    sizes = point.case.sizes
    block = section.block
    names = ["N", *point.kind.widths, *block.space]
    return f"{point.kind.name} " + " ".join(f"{n}={sizes[n]}" for n in names if n in sizes)


def bindings(net: Net, section: Section, point: Point) -> dict[str, Any]:
    """Values of a block statement's binders by name, the flag off; proofs have none."""
    block = section.block
    case = point.case
    out: dict[str, Any] = dict(case.sizes)
    if block.record is not None:
        out[block.record[0]] = Record(block.record[1], case.parameters)
    else:
        out |= case.parameters
    out[block.input] = case.x
    out[block.incoming] = point.dy
    out |= case.options
    out |= {x: x for x in (*STRINGS, *net.loss.strings)}
    out[FLAG] = False
    return out


def scope_of(
    constant: Constant, values: Mapping[str, Any], roles: Mapping[str, str] | None = None
) -> dict[int, Any]:
    """A scope for a declaration's binders; hypotheses, and names without a value, are ``None``.

    ``roles`` gives the name under which ``values`` has a binder that is called otherwise.
    """
    roles = roles or {}
    names = ((p.local.uid, p.local.name) for p in constant.params)
    return {uid: values.get(roles.get(name, name)) for uid, name in names}


@dataclass(eq=False)
class Sample:
    """A point of a block and the derivatives of its forward there.

    No statement takes part in either, so that one sample serves any number of them.
    """

    net: Net
    section: Section
    point: Point
    gradients: dict[str, Array] = field(default_factory=dict)

    @cached_property
    def bound(self) -> dict[str, Any]:
        """Values of a statement's binders by name, the flag off."""
        return bindings(self.net, self.section, self.point)

    def bindings(self, flag: bool = False, kind: str = "") -> dict[str, Any]:
        """:attr:`bound`, the same objects every time; with what graphs bind beside it."""
        graph = kind in ("graph", "graph lemma")
        more = {"x": self.point.case.x, "e": self.point.dy} if graph else {}
        return {**self.bound, FLAG: flag, **more}

    def site(self, name: str) -> Array:
        """The derivative of the contracted output under a perturbation at a site."""
        if name not in self.gradients:
            self.gradients[name] = site_gradient(self.point.case, name, self.point.dy)
        return self.gradients[name]

    def parameter(self, name: str) -> Array:
        """The derivative in the parameter with the Lean name ``name``."""
        key = f"∂{name}"
        if key not in self.gradients:
            self.gradients[key] = parameter_gradient(self.point.case, name, self.point.dy)
        return self.gradients[key]

    @cached_property
    def values(self) -> dict[str, Array]:
        """The forward's value at every site."""
        return run(self.point.case)


def samples(net: Net, section: Section, seeds: Iterable[int]) -> Iterator[Sample]:
    """Per seed and kind a sample, and one more with masks where an option is on."""
    block = section.block
    optional = any(o.where == block.name for o in net.on)
    for seed in seeds:
        for kind in block.kinds:
            for dropped in (False, True) if optional else (False,):
                rng = rng_for(seed, f"{block.name} {kind.name} {dropped}")
                fwd = section.forwards[kind.name]
                yield Sample(net, section, sample(net, block, kind, fwd, rng, dropped=dropped))


class BlockCheck:
    """Confirms the obligations of one block at sampled points.

    With ``tolerant``, a statement that cannot be evaluated is a verdict of its own; otherwise it
    raises. ``slots`` are the block's clauses as its forward implies them and ``values`` the
    meanings of the net's names (made here where not given). With ``brief``, a bundle is left at
    the first column over the bound.
    """

    def __init__(
        self,
        derived: Derived,
        env: Environment,
        section: Section,
        *,
        tolerant: bool = False,
        slots: Mapping[str, Expected] | None = None,
        values: Mapping[str, Callable[..., Any]] | None = None,
        brief: bool = False,
    ) -> None:
        self.derived = derived
        self.tolerant = tolerant
        self.brief = brief
        self.chains: dict[str, Constant] = {}
        self.net = derived.net
        self.env = env
        self.section = section
        self.values = net_values(self.net, env) if values is None else values
        self.slots = expected_clauses(self.net, section.block, env) if slots is None else slots

    def check(
        self, obligations: list[Obligation], seeds: Iterable[int]
    ) -> tuple[dict[str, Tally], dict[str, Zero]]:
        tallies = {o.name: Tally() for o in obligations}
        zeros: dict[str, Zero] = {}
        for at in samples(self.net, self.section, seeds):
            evaluator = Evaluator(self.env, self.values)
            for obligation in obligations:
                if at.point.kind.name not in obligation.kinds:
                    continue
                tally = tallies[obligation.name]
                tally.sizes[sizes_text(self.section, at.point)] = None
                tally.margin = min(tally.margin, at.point.margins.worst)
                guarded(
                    tally,
                    partial(self.one, obligation, at, evaluator, tally, zeros),
                    self.tolerant,
                )
        return tallies, zeros

    def one(
        self,
        obligation: Obligation,
        at: Sample,
        evaluator: Evaluator,
        tally: Tally,
        zeros: dict[str, Zero],
    ) -> None:
        """Evaluate one obligation at one sample, into ``tally`` and ``zeros``."""
        constant = self.env[obligation.name]
        values = at.bindings(kind=obligation.kind)
        scope = scope_of(constant, values, obligation.roles)
        match obligation.kind:
            case "value":
                got = evaluator.value(constant.term, scope)
                tally.compare("value", got, at.values[obligation.site])
            case "cotangent":
                wanted = at.site(obligation.site)
                tally.compare("cotangent", evaluator.value(constant.term, scope), wanted)
                chain = self.rendered(obligation.site)
                if chain is not None:
                    got = evaluator.value(chain.term, scope_of(chain, values))
                    tally.compare("render", got, wanted)
            case "graph":
                got = evaluator.value(constant.term, scope)
                tally.compare("cotangent", got, at.site(self.section.block.input))
            case "graph lemma" | "tie":
                tally.equations(evaluator.equations(constant.type, scope))
            case "bundle":
                self._bundle(obligation, at, evaluator, tally, zeros)
            case "bundle proof":
                # Where it states the bundle at its own binders, the bundle's row evaluates it.
                if _states(constant, self.env):
                    tally.add("statement", 0.0)
                else:
                    self._bundle(obligation, at, evaluator, tally, zeros)
        fwd = self.section.forwards[at.point.kind.name]
        for note in misplaced(constant.term, self.env, fwd, obligation.roles):
            tally.worse(Verdict.FAILS, note)

    def rendered(self, site: str) -> Constant | None:
        """The render's chain at a site whose definition is the certificate's backward.

        Nothing in the file is spelled from it there, so that it would go unchecked.
        """
        names = self.section.block.cotangents
        if names.labels.get(site) not in names.from_certificate:
            return None
        if site not in self.chains:
            deriver = Deriver(self.section)
            groups, _ = deriver.frame(deriver.values(), None)
            body = deriver.chain_at(site)
            shape = self.section.block.input_shape
            if site in deriver.fwd.sites:
                shape = deriver.fwd.sites[site].shape
            self.chains[site] = elaborate_declaration(self.env, site, groups, vec(shape), body)
        return self.chains[site]

    def _bundle(
        self,
        obligation: Obligation,
        at: Sample,
        evaluator: Evaluator,
        tally: Tally,
        zeros: dict[str, Zero],
    ) -> None:
        constant = self.env[obligation.name]
        term = constant.term
        names = {obligation.roles.get(p.local.name, p.local.name) for p in constant.params}
        flags = (False, True) if FLAG in names else (False,)
        seen: Counter[str] = Counter()
        for flag in flags:
            scope = scope_of(constant, at.bindings(flag), obligation.roles)
            for leaf in leaves(evaluator, term, scope):
                name = leaf.path[-1]
                if len(leaf.path) == 1:
                    name = obligation.roles.get(name, name)
                if not flag:
                    seen[name] += 1
                self.clause(name, leaf, at, evaluator, tally, zeros, flag)
                if self.brief and tally.over():
                    return
        for site in self.section.forwards[at.point.kind.name].sites.values():
            for p in site.parameters:
                if p.trained:
                    tally.counted(p.lean, seen[p.lean])

    def clause(
        self,
        name: str,
        leaf: Leaf,
        at: Sample,
        evaluator: Evaluator,
        tally: Tally,
        zeros: dict[str, Zero],
        flag: bool,
    ) -> None:
        """One gradient node: its statement, the cotangent it reads, the node, its other slots.

        ``name`` is the Lean name of the parameter in the clause's parameter slot.
        The cotangent has a column of its own because a node can be right at the wrong one: a
        bias before a BatchNorm has a zero gradient whatever it reads.
        """
        case = at.point.case
        owner = next(
            (p for x in case.fwd.sites.values() for p in x.parameters if p.lean == name), None
        )
        if owner is None or name not in case.parameters:
            tally.equations(evaluator.equations(leaf.statement, leaf.scope), f"{name}: ")
            tally.worse(Verdict.INCOMPLETE, f"{name} is no parameter of the block")
            return
        cot, right = read_cotangent(evaluator, leaf), at.site(owner.site)
        if cot.shape != right.shape:
            tally.add("cotangent", float("inf"), f"{name} reads a cotangent of another shape")
            return
        read = relative_error(cot, right)
        tally.add("cotangent", read, f"{name} reads the cotangent {where(cot, right)}")
        got = node_value(evaluator, leaf)
        wanted = at.parameter(name).reshape(1, -1)
        scale = float(np.max(node_magnitude(evaluator, leaf)))
        if got.shape != wanted.shape:
            tally.add("intent", float("inf"), f"{name}: the node has another shape")
            return
        meant = relative_error(got, wanted, scale)
        tally.add("intent", meant, f"{name}: {where(got, wanted)}")
        if self.brief and tally.over():
            return
        stated = tally.equations(evaluator.equations(leaf.statement, leaf.scope), f"{name}: ")
        self._zero(name, wanted, scale, zeros)
        # A clause that is wrong by its numbers is not looked at slot by slot.
        if max(read, meant, stated) <= BOUND:
            note = self._slots(name, leaf, {**at.bindings(flag), COTANGENT: right}, evaluator)
            if note is not None:
                tally.worse(Verdict.FAILS, f"{name}: {note}")

    def _slots(
        self, name: str, leaf: Leaf, values: Mapping[str, Any], evaluator: Evaluator
    ) -> str | None:
        """What stands in a slot no value depends on, where it is not the layer's."""
        if name not in self.slots:
            return None
        for form in self.slots[name]:
            for other in leaves(evaluator, form.term, scope_of(form, values)):
                if other.path[-1] == name and other.graph.name == leaf.graph.name:
                    return clause_difference(evaluator, leaf, other)
        return f"the gradient node is {leaf.graph.name}, which is not its layer's"

    def _zero(self, name: str, wanted: Array, scale: float, zeros: dict[str, Zero]) -> None:
        reason = block_zero_reason(self.section, name)
        if reason is None:
            return
        found = float(np.max(np.abs(wanted))) / max(scale, 1e-300)
        found_zero(zeros, Zero(f"{self.section.block.name}.{name}", reason, found))


def _states(constant: Constant, env: Environment) -> bool:
    """Whether a bundle's theorem states the bundle at its own binders, in order."""
    found = resolve(constant.type)
    bundle = env.find(found.name) if isinstance(found, Call) else None
    if not isinstance(found, Call) or bundle is None or len(bundle.params) != len(found.args):
        return False
    return [resolve(a) for a in found.args] == [p.local for p in constant.params]
