"""Confirm every statement of a net numerically: what is evaluated is the printed term.

Per block, at samples away from every kink: each named cotangent against the derivative under an
additive perturbation at its site; each tie against the derivative in the input; each clause twice
(its own statement, and the same node against the whole block's derivative in that parameter).
For the whole net, narrowed by one substitution: each node of the printed capstone against the
derivative of the loss, in one random direction per tensor.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from functools import partial

from obligations.confirm.block import BlockCheck
from obligations.confirm.step import check_step
from obligations.confirm.tally import Progress, Tally, guarded
from obligations.confirm.whole import NetCheck
from obligations.lean import Environment
from obligations.ledger import Ledger, Zero
from obligations.statements import Derived, Obligation, typed_environment


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
