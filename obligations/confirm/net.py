"""Confirm every statement of a net numerically: what is evaluated is the printed term.

Per block, at samples away from every kink: each named cotangent against the derivative under an
additive perturbation at its site; each tie against the derivative in the input; each clause twice
(its own statement, and the same node against the whole block's derivative in that parameter).
For the whole net, narrowed by one substitution: each node of the printed capstone against the
derivative of the loss, in one random direction per tensor.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from obligations.confirm.narrowing import narrowed
from obligations.confirm.slots import (
    COTANGENT,
    Expected,
    clause_difference,
    expected_clauses,
    misplaced,
    misplaced_fields,
    node_name,
)
from obligations.description.model import Net
from obligations.errors import ObligationsError
from obligations.lean.elab import Constant, Environment, elaborate_declaration
from obligations.ledger.rows import BOUND, Ledger, Row, Verdict, Zero
from obligations.ops.base import Array, Operation
from obligations.ops.library import environment
from obligations.ops.loss import LOSS_STRINGS
from obligations.shadow.clauses import (
    Leaf,
    leaves,
    node_magnitude,
    node_value,
    read_cotangent,
)
from obligations.shadow.evaluate import STEP, Evaluator, relative_error
from obligations.shadow.forward import (
    parameter_gradient,
    run,
    site_gradient,
)
from obligations.shadow.sample import NetPoint, Point, sample, sample_net
from obligations.shadow.values import Record, WholeNet, net_values
from obligations.statements.derive import FLAG, STRINGS, Derived, Deriver, Section
from obligations.statements.net_names import Narrow, narrow, net_entries
from obligations.statements.obligation import Declaration, Obligation
from obligations.statements.spell import vec
from obligations.statements.zeros import block_zero_reason, whole_zero_reasons

Progress = Callable[[str], None]


def declare_all(env: Environment, derived: Derived) -> None:
    """Elaborate every declaration of the file in order; raises where one does not fit."""
    for obligation in derived.obligations:
        d = obligation.declaration
        env.declare(d.name, d.binders, d.type, d.value)


def typed_environment(derived: Derived) -> Environment:
    """The environment with the library's names, the net's and the file's own declarations."""
    env = environment(net_entries(derived.net))
    declare_all(env, derived)
    return env


# -- one row -----------------------------------------------------------------------------------


@dataclass(slots=True)
class Tally:
    """The worst of each column over the samples of one obligation."""

    errors: dict[str, float] = field(default_factory=dict)
    margin: float = float("inf")
    sizes: dict[str, None] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    verdict: Verdict = "holds"

    def add(self, column: str, error: float, note: str = "") -> None:
        self.errors[column] = max(self.errors.get(column, 0.0), error)
        if error > BOUND and note:
            self.notes[note] = None

    def over(self) -> bool:
        """Whether a column is over the bound."""
        return any(not e <= BOUND for e in self.errors.values())

    def worse(self, verdict: Verdict, note: str) -> None:
        if self.verdict == "holds":
            self.verdict = verdict
        self.notes[note] = None

    def row(self, obligation: Obligation) -> Row:
        verdict = self.verdict
        if verdict == "holds":
            over = {c for c, e in self.errors.items() if not e <= BOUND}
            ties = obligation.kind in ("bundle", "bundle proof", "capstone")
            if over and ties and "statement" not in over:
                verdict = "not the gradient"
            elif over:
                verdict = "fails"
            elif not self.errors:
                verdict = "not evaluated"
        return Row(
            obligation.name,
            obligation.kind,
            ", ".join(self.sizes),
            self.errors,
            None if self.margin == float("inf") else self.margin,
            verdict,
            tuple(self.notes),
        )


def guarded(tally: Tally, evaluate: Callable[[], None], tolerant: bool) -> None:
    """Run ``evaluate``; where ``tolerant``, what cannot be evaluated is a verdict in ``tally``."""
    if not tolerant:
        evaluate()
        return
    try:
        evaluate()
    except ObligationsError as error:
        tally.worse("not evaluable", error.message)
    except NUMERIC as error:
        tally.worse("not evaluable", f"its values do not fit together: {error}")
    except RecursionError:
        tally.worse("not evaluable", "nested too deeply")


def where(a: Array, b: Array) -> str:
    """The index where two arrays differ most, and the numbers there."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    i = int(np.argmax(np.abs(a - b)))
    return f"index {i}: {a.reshape(-1)[i]:.6g} against {b.reshape(-1)[i]:.6g}"


def sizes_text(section: Section, point: Point) -> str:
    """``Id N=2 c=3 h=2 w=4``."""
    sizes = point.case.sizes
    block = section.block
    names = ["N", *point.kind.widths, block.height, block.width]
    return f"{point.kind.name} " + " ".join(f"{n}={sizes[n]}" for n in names if n in sizes)


def bindings(net: Net, section: Section, point: Point, flag: bool) -> dict[str, Any]:
    """Values of a block statement's binders by name; proofs have none."""
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
    out |= {x: x for x in (*STRINGS, *LOSS_STRINGS)}
    out[FLAG] = flag
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


NUMERIC = (ArithmeticError, AssertionError, IndexError, KeyError, TypeError, ValueError)
"""What NumPy and a value's functions raise at values that do not belong together."""


@dataclass(slots=True, eq=False)
class Sample:
    """A point of a block and the derivatives of its forward there.

    No statement takes part in either, so that one sample serves any number of them.
    """

    net: Net
    section: Section
    point: Point
    bound: dict[bool, dict[str, Any]] = field(default_factory=dict)
    gradients: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)

    def bindings(self, flag: bool) -> dict[str, Any]:
        """Values of a statement's binders by name; the same objects every time."""
        if flag not in self.bound:
            self.bound[flag] = bindings(self.net, self.section, self.point, flag)
            if flag:
                base = self.bindings(False)
                self.bound[flag] = {**base, FLAG: True}
        return self.bound[flag]

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

    def value(self, name: str) -> Array:
        """The forward's value at a site."""
        if not self.values:
            self.values |= run(self.point.case)
        return self.values[name]


def samples(net: Net, section: Section, seeds: Iterable[int]) -> Iterator[Sample]:
    """Per seed and kind a sample, and one more with masks where an option is on."""
    block = section.block
    optional = any(
        o.where == block.role and net.settings[o.name] != o.values[0] for o in net.options
    )
    for seed in seeds:
        for kind in block.kinds:
            for dropped in (False, True) if optional else (False,):
                text = f"{block.name} {kind.name} {dropped}"
                rng = np.random.default_rng([seed, zlib.crc32(text.encode())])
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
        constant = self.env.find(obligation.name)
        assert constant is not None
        values = at.bindings(False)
        if obligation.kind in ("graph", "graph lemma"):
            values = {**values, "x": at.point.case.x, "e": at.point.dy}
        scope = scope_of(constant, values, obligation.roles)
        match obligation.kind:
            case "value":
                assert constant.body is not None
                got = np.asarray(evaluator.value(constant.body, scope))
                wanted = at.value(obligation.site)
                tally.add("value", relative_error(got, wanted), where(got, wanted))
            case "cotangent":
                assert constant.body is not None
                got = np.asarray(evaluator.value(constant.body, scope))
                wanted = at.site(obligation.site)
                tally.add("cotangent", relative_error(got, wanted), where(got, wanted))
                chain = self.rendered(obligation.site)
                if chain is not None and chain.body is not None:
                    got = np.asarray(evaluator.value(chain.body, scope_of(chain, values)))
                    tally.add("render", relative_error(got, wanted), where(got, wanted))
            case "graph":
                assert constant.body is not None
                got = np.asarray(evaluator.value(constant.body, scope))
                wanted = at.site(self.section.block.input)
                tally.add("cotangent", relative_error(got, wanted), where(got, wanted))
            case "graph lemma" | "tie":
                for equation in evaluator.equations(constant.type, scope):
                    tally.add("statement", equation.error(), where(equation.left, equation.right))
            case "bundle":
                self._bundle(obligation, at, evaluator, tally, zeros)
            case "bundle proof":
                # Where it states the bundle at its own binders, the bundle's row evaluates it.
                if _states(constant, self.env):
                    tally.add("statement", 0.0)
                else:
                    self._bundle(obligation, at, evaluator, tally, zeros)
        fwd = self.section.forwards[at.point.kind.name]
        term = constant.type if constant.body is None else constant.body
        for note in misplaced(term, self.env, fwd, obligation.roles):
            tally.worse("fails", note)

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
        constant = self.env.find(obligation.name)
        assert constant is not None
        term = constant.type if constant.body is None else constant.body
        names = {obligation.roles.get(p.local.name, p.local.name) for p in constant.params}
        flags = (False, True) if FLAG in names else (False,)
        seen: dict[str, int] = {}
        for flag in flags:
            scope = scope_of(constant, at.bindings(flag), obligation.roles)
            for leaf in leaves(evaluator, term, scope):
                name = leaf.path[-1]
                if len(leaf.path) == 1:
                    name = obligation.roles.get(name, name)
                if not flag:
                    seen[name] = seen.get(name, 0) + 1
                self.clause(name, leaf, at, evaluator, tally, zeros, flag)
                if self.brief and tally.over():
                    return
        for site in self.section.forwards[at.point.kind.name].sites.values():
            for p in site.parameters:
                count = seen.get(p.lean, 0)
                if p.trained and count != 1:
                    times = "no clause" if count == 0 else f"{count} clauses"
                    tally.worse("incomplete", f"{p.lean} has {times}")

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
            self._statement(name, leaf, evaluator, tally)
            tally.worse("incomplete", f"{name} is no parameter of the block")
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
        stated = self._statement(name, leaf, evaluator, tally)
        self._zero(name, wanted, scale, zeros)
        # A clause that is wrong by its numbers is not looked at slot by slot.
        if max(read, meant, stated) <= BOUND:
            note = self._slots(name, leaf, at, evaluator, flag)
            if note is not None:
                tally.worse("fails", f"{name}: {note}")

    def _statement(self, name: str, leaf: Leaf, evaluator: Evaluator, tally: Tally) -> float:
        worst = 0.0
        for equation in evaluator.equations(leaf.statement, leaf.scope):
            error = equation.error()
            worst = max(worst, error)
            tally.add("statement", error, f"{name}: {where(equation.left, equation.right)}")
        return worst

    def _slots(
        self, name: str, leaf: Leaf, at: Sample, evaluator: Evaluator, flag: bool
    ) -> str | None:
        """What stands in a slot no value depends on, where it is not the layer's."""
        known = self.slots.get(name)
        if known is None:
            return None
        owner = next(
            p for x in at.point.case.fwd.sites.values() for p in x.parameters if p.lean == name
        )
        values = {**at.bindings(flag), COTANGENT: at.site(owner.site)}
        for form in known.forms:
            assert form.body is not None
            for other in leaves(evaluator, form.body, scope_of(form, values)):
                if other.path[-1] == name and node_name(other) == node_name(leaf):
                    return clause_difference(evaluator, leaf, other)
        return f"the gradient node is {node_name(leaf)}, which is not its layer's"

    def _zero(self, name: str, wanted: Array, scale: float, zeros: dict[str, Zero]) -> None:
        reason = block_zero_reason(self.section, name)
        if reason is None:
            return
        found = float(np.max(np.abs(wanted))) / max(scale, 1e-300)
        label = f"{self.section.block.name}.{name}"
        old = zeros.get(label)
        zeros[label] = Zero(label, reason, max(found, old.found if old else 0.0))


def _states(constant: Constant, env: Environment) -> bool:
    """Whether a bundle's theorem states the bundle at its own binders, in order."""
    from obligations.lean.typed import Call, resolve

    found = resolve(constant.type)
    if not isinstance(found, Call):
        return False
    bundle = env.find(found.name)
    if bundle is None or len(bundle.params) != len(found.args):
        return False
    own = [p.local for p in constant.params]
    return [resolve(a) for a in found.args] == own


# -- library steps -----------------------------------------------------------------------------


def check_step(
    obligation: Obligation, env: Environment, seeds: Iterable[int], tally: Tally
) -> None:
    """A step the file defines, against the derivative of its operation's forward."""
    from obligations.ops import operations

    step = obligation.notes.get("step", obligation.name)
    operation = next(o for o in operations().values() if o.backward.defined_in_file == step)
    constant = env.find(obligation.name)
    assert constant is not None
    assert constant.body is not None
    for seed in seeds:
        rng = np.random.default_rng([seed, zlib.crc32(obligation.name.encode())])
        sizes = {"N": 2, "ic": 3, "oc": 4, "c": 3, "h": 2, "w": 3, "kH": 3, "kW": 3}
        evaluator = Evaluator(env)
        params, x, dy = _operation_point(operation, sizes, rng)
        values = {**sizes, **params, "dy": dy}
        scope = scope_of(constant, values, obligation.roles)
        got = np.asarray(evaluator.value(constant.body, scope))
        wanted = _operation_vjp(operation, sizes, params, x, dy)
        tally.add("cotangent", relative_error(got, wanted), where(got, wanted))
        tally.sizes[" ".join(f"{k}={v}" for k, v in sizes.items() if k in _used(operation))] = None


def _used(operation: Operation) -> set[str]:
    names = {a.removeprefix("2*") for axes_ in operation.axes for a in axes_}
    return names | {"N"} | ({"kH", "kW"} if operation.kernel else set())


def _axis(name: str, sizes: Mapping[str, int]) -> int:
    return 2 * sizes[name[2:]] if name.startswith("2*") else sizes[name]


def _operation_point(
    operation: Operation, sizes: Mapping[str, int], rng: np.random.Generator
) -> tuple[dict[str, Array], Array, Array]:
    from obligations.lean.parse import parse_term
    from obligations.shadow.sample import tensor, type_shape

    params = {
        p.symbol: tensor(p.symbol, type_shape(parse_term(p.type), sizes), rng)
        for p in operation.parameters
    }
    for symbol in operation.hyper:
        params[symbol] = tensor(symbol, (), rng)
    n_in = sizes["N"] * int(np.prod([_axis(a, sizes) for a in operation.axes[0]]))
    n_out = sizes["N"] * int(np.prod([_axis(a, sizes) for a in operation.axes[1]]))
    return params, rng.normal(size=(1, n_in)), rng.normal(size=(1, n_out))


def _operation_vjp(
    operation: Operation,
    sizes: Mapping[str, int],
    params: Mapping[str, Array],
    x: Array,
    dy: Array,
) -> Array:
    from obligations.shadow.evaluate import vjp

    return vjp(lambda v: operation.run(sizes, params, v), x, dy)


# -- the whole net -----------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class NetSample:
    """A point of the narrow net and the loss's slope in each tensor along one random direction.

    No statement takes part in either, so that one sample serves any number of them.
    """

    seed: int
    point: NetPoint
    values: Mapping[str, Any]
    directions: dict[tuple[str, ...], Array] = field(default_factory=dict)
    slopes: dict[tuple[str, ...], float] = field(default_factory=dict)

    def direction(self, path: tuple[str, ...]) -> Array:
        """The direction of a tensor, the same whatever else is asked for."""
        if path not in self.directions:
            rng = np.random.default_rng([self.seed, zlib.crc32(".".join(path).encode())])
            self.directions[path] = rng.normal(size=self.point.weights.at(path).shape)
        return self.directions[path]


@dataclass(slots=True)
class NetCheck:
    """Confirms the capstone and the loss row on a narrow net."""

    derived: Derived
    by: Narrow
    env: Environment
    whole: WholeNet
    threaded: bool | None = None
    """Whether the loss is the net's own or ``Σ g·logits``; as the net says where not given."""

    @classmethod
    def build(cls, derived: Derived) -> NetCheck:
        net = derived.net
        by = narrow(net)
        env = environment(net_entries(net, by))
        check = cls(derived, by, env, WholeNet(net, by))
        for obligation in derived.obligations:
            d = obligation.declaration
            if not obligation.block and obligation.kind in ("capstone", "loss"):
                d = check.scaled(d)
            env.declare(d.name, d.binders, d.type, d.value)
        return check

    def scaled(self, declaration: Declaration) -> Declaration:
        """A whole-net declaration at the narrow sizes (:func:`narrowed`)."""
        blocks = self.derived.net.blocks
        # What a block calls the rows and columns of its output.
        called = {
            o.name: {blocks[o.block].height: "h", blocks[o.block].width: "w"}
            for o in self.derived.obligations
            if o.block
        }
        return narrowed(declaration, self.env, self.by, called)

    def bindings(self, point: NetPoint, flag: bool) -> dict[str, Any]:
        net = self.derived.net
        return {
            "N": point.batch,
            net.classes: point.classes,
            "w": point.weights,
            net.input: point.x,
            "t": point.target,
            "g": point.g,
            "α": point.alpha,
            "B": point.divisor,
            FLAG: flag,
            **{x: x for x in (*STRINGS, *LOSS_STRINGS)},
            **point.options,
        }

    def loss(self, point: NetPoint, logits: Array) -> Array:
        """The loss the capstone's cotangent belongs to, ``(p, 1)``, from the logits."""
        said = self.derived.net.capstone.threaded
        if not (said if self.threaded is None else self.threaded):
            linear: Array = (logits * point.g).sum(axis=-1, keepdims=True)
            return linear
        z = logits.reshape(logits.shape[0], point.batch, point.classes)
        t = point.target.reshape(1, point.batch, point.classes)
        target = (1 - point.alpha) * t + point.alpha / point.classes
        top = z.real.max(axis=-1, keepdims=True)
        log_sum = np.log(np.exp(z - top).sum(axis=-1, keepdims=True)) + top
        total: Array = (target * (log_sum - z)).sum(axis=(1, 2))[:, None]
        return total / point.divisor

    def capstone(
        self,
        obligation: Obligation,
        seeds: Iterable[int],
        tally: Tally,
        zeros: dict[str, Zero],
    ) -> None:
        """Each node of the capstone against the loss's derivative in its tensor."""
        constant = self.env.find(obligation.name)
        assert constant is not None
        for at in self.samples(seeds):
            tally.margin = min(tally.margin, at.point.worst)
            evaluator = Evaluator(self.env, net_values(self.derived.net, self.env, self.whole))
            scope = scope_of(constant, at.values, obligation.roles)
            found = list(leaves(evaluator, constant.type, scope))
            self.tensors(found, at, evaluator, tally, zeros)
            self.counted(found, tally)
            tally.sizes[f"N={at.point.batch} {self.derived.net.classes}={at.point.classes}"] = None
        for note in misplaced_fields(constant.type, self.env, self.derived.net):
            tally.worse("fails", note)

    def samples(self, seeds: Iterable[int]) -> Iterator[NetSample]:
        """Per seed a point, and one more with masks where an option is on."""
        for seed in seeds:
            for dropped in (False, True) if _optional(self.derived.net) else (False,):
                rng = np.random.default_rng([seed, zlib.crc32(f"net {dropped}".encode())])
                point = sample_net(self.whole, rng, dropped=dropped)
                yield NetSample(seed, point, self.bindings(point, False))

    def tensors(
        self,
        found: list[Leaf],
        at: NetSample,
        evaluator: Evaluator,
        tally: Tally,
        zeros: dict[str, Zero],
    ) -> None:
        """Gradient nodes of the capstone against the loss's slopes."""
        missing = list(dict.fromkeys(x.path[1:] for x in found if x.path[1:] not in at.slopes))
        if missing:
            slopes = self._slopes(at.point, missing, [at.direction(p) for p in missing])
            at.slopes.update(zip(missing, slopes, strict=True))
        reasons = whole_zero_reasons(self.derived)
        for leaf in found:
            path = leaf.path[1:]
            slope = at.slopes[path]
            node = node_value(evaluator, leaf).reshape(-1)
            flat = at.direction(path).reshape(-1)
            name = ".".join(path)
            if node.size != flat.size:
                tally.add("intent", float("inf"), f"{name}: the node has another shape")
                continue
            scale = float((node_magnitude(evaluator, leaf).reshape(-1) * np.abs(flat)).sum())
            got = np.array([(node * flat).sum()])
            wanted = np.array([slope])
            tally.add(
                "intent",
                relative_error(got, wanted, scale),
                f"{name}: {got[0]:.6g} against {slope:.6g} along a random direction",
            )
            reason = reasons.get(path)
            if reason is not None:
                old = zeros.get(name)
                size = abs(slope) / max(scale, 1e-300)
                zeros[name] = Zero(name, reason, max(size, old.found if old else 0.0))
                tally.add("zero", size, f"{name} is not zero: {slope:.3g}")

    def counted(self, found: list[Leaf], tally: Tally) -> None:
        """Every tensor has exactly one clause."""
        seen = Counter(leaf.path[1:] for leaf in found)
        for path in self.trained():
            count = seen[path]
            if count != 1:
                times = "no clause" if count == 0 else f"{count} clauses"
                tally.worse("incomplete", f"{'.'.join(path)} has {times}")

    def trained(self) -> list[tuple[str, ...]]:
        """The path of every tensor with a gradient, in layer order."""
        net = self.derived.net
        out: list[tuple[str, ...]] = []
        for layer in net.layers:
            block, kind = net.block_of(layer.kind)
            for site in block.sites[kind.name]:
                for p in site.parameters:
                    if p.trained:
                        out.append((layer.name, p.lean) if block.record else (p.field,))
        return out

    def _slopes(
        self, point: NetPoint, paths: list[tuple[str, ...]], directions: list[Array]
    ) -> list[float]:
        """The loss's derivative along one direction per tensor, a complex step each.

        A tensor of one block leaves the values before it as they are, so each block's tensors
        run from that block on, together.
        """
        at = {stop.field: i for i, stop in enumerate(self.whole.stops) if stop.field}
        net = self.derived.net
        for i, stop in enumerate(self.whole.stops):
            block, _ = net.block_of(stop.kind)
            at |= {f: i for group in block.loose for _, f in group}
        base = self.whole.prefixes(
            point.batch, point.classes, point.weights, point.x, point.options
        )
        groups: dict[int, list[int]] = {}
        for k, path in enumerate(paths):
            groups.setdefault(at[path[0]], []).append(k)
        out = [0.0] * len(paths)
        for first, members in groups.items():
            weights = point.weights
            for row, k in enumerate(members):
                value = weights.at(paths[k])
                wide = np.broadcast_to(value, (len(members), *value.shape[1:])).astype(complex)
                wide = np.array(wide)
                wide[row] += 1j * STEP * directions[k][0]
                weights = weights.with_field(paths[k], wide)
            x = point.x if first == 0 else base[first - 1]
            values = self.whole.prefixes(
                point.batch, point.classes, weights, x, point.options, first
            )
            slope = self.loss(point, values[-1]).imag / STEP
            for row, k in enumerate(members):
                out[k] = float(slope[row, 0])
        return out

    def loss_row(self, obligation: Obligation, seeds: Iterable[int], tally: Tally) -> None:
        """The loss lemma at every example and class."""
        constant = self.env.find(obligation.name)
        assert constant is not None
        for seed in seeds:
            rng = np.random.default_rng([seed, zlib.crc32(b"loss")])
            point = sample_net(self.whole, rng, dropped=_optional(self.derived.net))
            left, right = self.loss_sides(obligation, point)
            tally.add("statement", relative_error(left, right), where(left, right))
            tally.sizes[f"N={point.batch} {self.derived.net.classes}={point.classes}"] = None
        for note in misplaced_fields(constant.type, self.env, self.derived.net):
            tally.worse("fails", note)

    def loss_sides(self, obligation: Obligation, point: NetPoint) -> tuple[Array, Array]:
        """Both sides of the loss lemma at every example and class of a point."""
        constant = self.env.find(obligation.name)
        assert constant is not None
        evaluator = Evaluator(self.env, net_values(self.derived.net, self.env, self.whole))
        left, right = [], []
        for n in range(point.batch):
            for j in range(point.classes):
                values = {**self.bindings(point, False), "n": n, "j": j}
                scope = scope_of(constant, values, obligation.roles)
                for equation in evaluator.equations(constant.type, scope):
                    left.append(equation.left.reshape(-1))
                    right.append(equation.right.reshape(-1))
        return np.concatenate(left), np.concatenate(right)


def _optional(net: Net) -> bool:
    return any(net.settings[o.name] != o.values[0] for o in net.options)


# -- all of it ---------------------------------------------------------------------------------


def evaluate(
    derived: Derived,
    obligations: Sequence[Obligation],
    env: Environment,
    net_check: NetCheck,
    seeds: tuple[int, ...],
    tell: Progress,
    *,
    tolerant: bool = False,
) -> tuple[dict[str, Tally], dict[str, Zero]]:
    """Evaluate ``obligations``, generated or read from a file, against what ``derived`` says.

    Parameters
    ----------
    env, net_check
        Where the obligations' declarations are elaborated: at their own sizes, and narrowed.
    tolerant
        What cannot be evaluated is a verdict instead of an error.
    """
    tallies: dict[str, Tally] = {}
    zeros: dict[str, Zero] = {}
    for name, section in derived.sections.items():
        tell(name)
        own = [o for o in obligations if o.block == name and o.kind not in _NOT_A_BLOCKS]
        if own:
            block_check = BlockCheck(derived, env, section, tolerant=tolerant)
            found, block_zeros = block_check.check(own, seeds)
            tallies |= found
            zeros |= block_zeros
    tell("the whole net")
    for obligation in obligations:
        if obligation.kind not in _NOT_A_BLOCKS:
            continue
        tally = tallies[obligation.name] = Tally()
        given = (obligation, env, net_check, seeds, tally, zeros)
        guarded(tally, partial(_beside_blocks, *given), tolerant)
    return tallies, zeros


_NOT_A_BLOCKS = ("step", "capstone", "loss")


def _beside_blocks(
    obligation: Obligation,
    env: Environment,
    net_check: NetCheck,
    seeds: tuple[int, ...],
    tally: Tally,
    zeros: dict[str, Zero],
) -> None:
    if obligation.kind == "step":
        check_step(obligation, env, seeds, tally)
    elif obligation.kind == "capstone":
        net_check.capstone(obligation, seeds, tally, zeros)
    else:
        net_check.loss_row(obligation, seeds, tally)


def confirm(
    derived: Derived, *, seeds: Iterable[int] = (0,), progress: Progress | None = None
) -> Ledger:
    """Evaluate every obligation of ``derived``.

    Parameters
    ----------
    seeds
        Random seeds; every statement is evaluated at each.
    progress
        Called with the name of what is evaluated next.

    Raises
    ------
    ElabError
        When a statement is not well typed.
    """
    from obligations.confirm import beyond, hypotheses

    start = time.perf_counter()
    seeds = tuple(seeds)
    tell = progress or (lambda _: None)
    env = typed_environment(derived)
    net_check = NetCheck.build(derived)
    tallies, zeros = evaluate(derived, derived.obligations, env, net_check, seeds, tell)
    tell("hypotheses")
    further = hypotheses.rows(derived, env, seeds[0])
    tell("beyond one device")
    further += beyond.rows(derived, net_check, seeds)
    rows = tuple(tallies[o.name].row(o) for o in derived.obligations)
    return Ledger(
        derived.net.name,
        rows,
        net_check.by.text,
        tuple(zeros.values()),
        time.perf_counter() - start,
        seeds,
        derived.left_out,
        tuple(further),
    )
