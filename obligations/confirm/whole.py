"""The whole-net statements, evaluated on the narrowed net."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from obligations.confirm.block import scope_of
from obligations.confirm.narrowing import narrowed
from obligations.confirm.slots import misplaced_fields
from obligations.confirm.tally import Tally, found_zero
from obligations.description import Net
from obligations.lean import Constant, Declaration, Environment
from obligations.ledger import Verdict, Zero
from obligations.ops import FLAG, SEED, STRINGS, Array, environment
from obligations.shadow import (
    STEP,
    Evaluator,
    Leaf,
    NetPoint,
    WholeNet,
    leaves,
    net_values,
    node_magnitude,
    node_value,
    relative_error,
    rng_for,
    sample_net,
)
from obligations.statements import (
    Derived,
    Narrow,
    Obligation,
    narrow,
    net_entries,
    whole_zero_reasons,
)


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
            rng = rng_for(self.seed, ".".join(path))
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
    def build(cls, derived: Derived, by: Narrow | None = None) -> NetCheck:
        """The check on the net scaled down, by its own ``scale`` line where not told otherwise."""
        net = derived.net
        by = by or narrow(net)
        env = environment(net_entries(net, by))
        check = cls(derived, by, env, WholeNet(net, by))
        for obligation in derived.obligations:
            d = obligation.declaration
            if not obligation.block and obligation.kind in ("capstone", "loss"):
                d = check.scaled(d)
            env.add(d)
        return check

    def evaluator(self) -> Evaluator:
        """An evaluator that has evaluated nothing yet."""
        return Evaluator(self.env, net_values(self.derived.net, self.env, self.whole))

    def scaled(self, declaration: Declaration) -> Declaration:
        """A whole-net declaration at the narrow sizes (:func:`narrowed`)."""
        blocks = self.derived.net.blocks
        # What a block calls the rows and columns of its output.
        called = {
            o.name: dict(zip(blocks[o.block].space, "hw", strict=False))
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
            SEED: point.g,
            FLAG: flag,
            **{x: x for x in (*STRINGS, *net.loss.strings)},
            **point.given,
            **point.options,
        }

    def loss(self, point: NetPoint, logits: Array) -> Array:
        """The loss the capstone's cotangent belongs to, ``(p, 1)``, from the logits."""
        said = self.derived.net.capstone.threaded
        if not (said if self.threaded is None else self.threaded):
            linear: Array = (logits * point.g).sum(axis=-1, keepdims=True)
            return linear
        return self.derived.net.loss.value(point.batch, point.classes, point.given, logits)

    def capstone(
        self,
        obligation: Obligation,
        seeds: Iterable[int],
        tally: Tally,
        zeros: dict[str, Zero],
    ) -> None:
        """Each node of the capstone against the loss's derivative in its tensor."""
        constant = self.env[obligation.name]
        for at in self.samples(seeds):
            tally.margin = min(tally.margin, at.point.worst)
            evaluator = self.evaluator()
            scope = scope_of(constant, at.values, obligation.roles)
            found = list(leaves(evaluator, constant.type, scope))
            self.tensors(found, at, evaluator, tally, zeros)
            self.counted(found, tally)
            self._at(at.point, tally)
        self._placed(constant, tally)

    def _placed(self, constant: Constant, tally: Tally) -> None:
        """What no value depends on stands where it belongs."""
        for note in misplaced_fields(constant.type, self.env, self.derived.net):
            tally.worse(Verdict.FAILS, note)

    def _at(self, point: NetPoint, tally: Tally) -> None:
        tally.sizes[f"N={point.batch} {self.derived.net.classes}={point.classes}"] = None

    def samples(self, seeds: Iterable[int]) -> Iterator[NetSample]:
        """Per seed a point, and one more with masks where an option is on."""
        for seed in seeds:
            for dropped in (False, True) if _optional(self.derived.net) else (False,):
                rng = rng_for(seed, f"net {dropped}")
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
                size = abs(slope) / max(scale, 1e-300)
                found_zero(zeros, Zero(name, reason, size))
                tally.add("zero", size, f"{name} is not zero: {slope:.3g}")

    def counted(self, found: list[Leaf], tally: Tally) -> None:
        """Every tensor has exactly one clause."""
        seen = Counter(leaf.path[1:] for leaf in found)
        for path in self.trained():
            tally.counted(".".join(path), seen[path])

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
        constant = self.env[obligation.name]
        for seed in seeds:
            rng = rng_for(seed, "loss")
            point = sample_net(self.whole, rng, dropped=_optional(self.derived.net))
            tally.compare("statement", *self.loss_sides(obligation, point))
            self._at(point, tally)
        self._placed(constant, tally)

    def loss_bindings(self, point: NetPoint) -> Iterator[dict[str, Any]]:
        """What the loss lemma binds, at every example and class of a point."""
        for n, j in np.ndindex(point.batch, point.classes):
            yield {**self.bindings(point, False), "n": n, "j": j}

    def loss_sides(self, obligation: Obligation, point: NetPoint) -> tuple[Array, Array]:
        """Both sides of the loss lemma at every example and class of a point."""
        constant = self.env[obligation.name]
        evaluator = self.evaluator()
        left, right = [], []
        for values in self.loss_bindings(point):
            scope = scope_of(constant, values, obligation.roles)
            for equation in evaluator.equations(constant.type, scope):
                left.append(equation.left.reshape(-1))
                right.append(equation.right.reshape(-1))
        return np.concatenate(left), np.concatenate(right)


def _optional(net: Net) -> bool:
    return any(net.settings[o.name] != o.values[0] for o in net.options)
