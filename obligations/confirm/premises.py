"""The hypotheses of a statement, at the samples where it is evaluated.

A statement of a block or of the whole net is evaluated at samples of the net's own, not at samples
of its binders: where one of its hypotheses does not hold, it claims nothing there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from obligations.confirm.block import samples, scope_of
from obligations.confirm.tally import NUMERIC
from obligations.confirm.whole import NetCheck
from obligations.description import Net
from obligations.errors import ObligationsError
from obligations.lean import Call, Environment, Local, head, is_proof, resolve, show
from obligations.shadow import (
    Evaluator,
    Predicate,
    Propositions,
    Values,
    net_values,
    rng_for,
    sample_net,
)
from obligations.statements import Obligation

_VALUES: Mapping[str, tuple[int, ...]] = {"Nat": (1, 2, 3, 4, 7), "Bool": (False, True)}
"""At which a hypothesis must hold, by the type of a variable; it may leave out the size 0."""

PROVED = ("tie", "graph lemma", "bundle proof", "capstone", "loss")
"""Kinds of obligations that may have hypotheses."""


def unmet(
    obligation: Obligation,
    env: Environment,
    net_check: NetCheck,
    seed: int,
    predicate: Callable[[Evaluator], Predicate],
    values: Mapping[str, Callable[..., Any]],
) -> list[str]:
    """What is to be said of each hypothesis that does not hold at every sample of ``seed``.

    Parameters
    ----------
    env
        Where the obligation's declaration is elaborated.
    predicate
        Meanings of the net's predicates, given an evaluator.
    values
        Meanings of further names.
    """
    constant = env.find(obligation.name)
    if constant is None or obligation.kind not in PROVED:
        return []
    net = net_check.derived.net
    hypotheses = [p.local for p in constant.params if is_proof(p.local)]
    hypotheses = [h for h in hypotheses if not _as_sampled(h, net)]
    if not hypotheses:
        return []
    whole = None if obligation.block else net_check.whole
    evaluator = Evaluator(env, {**net_values(net, env, whole), **values})
    propositions = Propositions(evaluator, rng_for(seed), predicate(evaluator))
    out: dict[str, None] = {}
    for bound in _samples(obligation, net_check, seed):
        sampled = scope_of(constant, bound, obligation.roles)
        for h in hypotheses:
            text = f"{h.name} : {show(h.type, 60)}"
            for where, scope in _with_sizes(h, sampled, evaluator):
                try:
                    with np.errstate(all="ignore"):
                        holds = propositions.truth(h.type, scope)
                except (ObligationsError, *NUMERIC) as error:
                    out[f"its hypothesis {text} cannot be evaluated: {error}"] = None
                    break
                if not holds:
                    out[f"its hypothesis {text} does not hold {where}"] = None
                    break
    return list(out)


def _with_sizes(
    hypothesis: Local, sampled: Values, evaluator: Evaluator
) -> Iterator[tuple[str, Values]]:
    """The sample, and the same with each size and flag of the hypothesis at its other values.

    A net's samples have few sizes, so that ``N = 2`` may hold at all of them by chance; such a
    hypothesis limits what is claimed. What the type of another value depends on stays as it is.
    """
    yield "where it was evaluated", sampled
    free = evaluator.free(hypothesis.type)
    fixed = {v.uid for other in free for v in evaluator.free(other.type)}
    for v in free:
        for value in () if v.uid in fixed else _VALUES.get(head(v.type), ()):
            shown = str(value).lower()
            yield f"at {v.name} = {shown}, which it leaves out", {**sampled, v.uid: value}


def _as_sampled(hypothesis: Local, net: Net) -> bool:
    """Whether it is a predicate of the net's blocks at the binders: every sample satisfies it."""
    found = resolve(hypothesis.type)
    own = {h.predicate for b in net.blocks.values() for h in b.positive}
    own |= {b.smooth.predicate for b in net.blocks.values() if b.smooth is not None}
    return (
        isinstance(found, Call)
        and found.name in own
        and all(isinstance(resolve(a), Local) for a in found.args)
    )


def _samples(obligation: Obligation, net_check: NetCheck, seed: int) -> Iterator[Mapping[str, Any]]:
    """Values of the binders at each sample of the code that evaluates such an obligation."""
    derived = net_check.derived
    if obligation.kind == "capstone":
        yield from (at.values for at in net_check.samples((seed,)))
    elif obligation.kind == "loss":
        rng = rng_for(seed, "loss")
        point = sample_net(net_check.whole, rng)
        yield from net_check.loss_bindings(point)
    else:
        for at in samples(derived.net, derived.sections[obligation.block], (seed,)):
            if at.point.kind.name in obligation.kinds:
                yield at.bindings(kind=obligation.kind)
