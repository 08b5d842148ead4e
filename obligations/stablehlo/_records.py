"""What is recognised in a training step: plain records, every one with its line in the file.

Values are named by their first SSA name (without ``%``); any name of a function leads to it through
:attr:`Recognised.canonical`. Lines count from 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Site:
    """A forward layer.

    ``kind`` is the word of the operation that the table has for it; ``grouped``, ``clip``,
    ``avgpool`` or ``scale`` where it has none. ``family`` is what it has in common with what may
    be described in its place. ``inputs`` are the activations it reads in order, ``params`` its
    parameters: weight then bias if it has one; scale and shift; the mask of a ``dropout``.

    Attributes by kind (per spatial axis where plural):
    ``conv``: ``kernel``, ``stride``, ``pads`` (low, high), ``phase`` (the input row the first
    kernel centre meets, ``(k - 1) // 2 · dilation - low``), ``dilation``, ``groups``, ``bias``
    (``absent``, ``zero`` or its parameter), ``bias_line``, ``element`` of the operands,
    ``read_as``: what is exchanged (rows and columns; the weight's features), in words;
    of a formula: ``coefficients`` of its terms, then the numbers in its functions; ``spread``, the
    dimensions each parameter is spread along; ``bounds`` between which it is kept; of one with
    statistics: ``axes``, ``statistics`` (what the table calls them, ``instance`` or ``other``),
    ``count`` of elements reduced, ``divisor`` and ``mean_divisor`` used, ``epsilon``,
    ``statistic_line`` of the root and ``mean_line`` of the difference from the mean;
    pools: ``window``, ``strides``, ``pads``; ``gap``: ``count``, ``divisor``; ``dense``:
    ``contracts`` (dimension of input and of weight), ``bias``.
    """

    index: int
    kind: str
    family: str
    value: str
    inputs: tuple[str, ...]
    params: tuple[str, ...]
    attributes: Mapping[str, Any]
    line: int


@dataclass(frozen=True, slots=True)
class Loss:
    """The loss's cotangent: ``seed = (softmax - kept · target - uniform) / batch``.

    Smoothing by α makes ``kept`` = 1 - α and ``uniform`` = α / classes.
    """

    logits: str
    softmax: str
    target: str
    seed: str
    batch: float
    kept: float
    uniform: float
    classes: int
    line: int


@dataclass(frozen=True, slots=True)
class BackStep:
    """One cotangent made from another: ``incoming`` to ``value``.

    ``kind`` is what the table calls the step back through an operation: its word, or ``mask``.
    ``saved`` is the saved activation it reads, ``weight`` the parameter,
    ``site`` the index of the forward site it goes back through, when there is one. ``line`` is
    that of ``value``; every step's ``attributes["from_line"]`` is the first line of its own.

    Attributes by kind: of a formula: ``coefficients`` of its terms and then the numbers in its
    functions (of a BatchNorm 1, -1/n, -1/n when right), ``exact``, whether the terms are the
    formula's, ``tests`` such as ``(("GT", 0.0), ("LT", 6.0))`` on ``saved``, ``saved_in``, all
    activations it reads; with statistics ``epsilon``, ``divisor``, …;
    ``conv``: ``stride``, ``dilation``, ``pad_low``, ``phase`` of the forward convolution it is
    the input-gradient of, ``flipped``, ``contracts``, ``groups``;
    ``maxpool``: ``window``, ``strides``, ``pads``, ``select``; ``gap``: ``divisor``.
    """

    kind: str
    incoming: str
    saved: str | None
    weight: str | None
    value: str
    attributes: Mapping[str, Any]
    line: int
    site: int | None


@dataclass(frozen=True, slots=True)
class FanIn:
    """Two cotangents of one value added, ``a + b`` in this order."""

    a: str
    b: str
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class GradNode:
    """The gradient of one parameter: what it reads and how.

    ``role`` is ``weight``, ``bias``, ``scale`` or ``shift`` of forward ``site``.
    ``kind`` is ``conv``, ``dense``, ``sum`` (of the cotangent), ``scaled sum`` (of the cotangent
    times the normalised input), ``unrecognised``, or ``missing`` (no update of it depends on the
    loss; then ``value`` is the update, or empty). ``x`` is the saved input it reads, ``cotangent``
    the cotangent, ``value`` the node. ``attributes["known"]`` says whether that cotangent is one
    the chain from the loss reaches.
    """

    parameter: str
    role: str
    kind: str
    x: str | None
    cotangent: str | None
    value: str
    attributes: Mapping[str, Any]
    line: int
    site: int | None


@dataclass(frozen=True, slots=True)
class Update:
    """The optimizer's tail of one parameter, found; its numbers are not checked.

    ``optimizer`` is what the table calls it; ``result`` is the place among
    the function's results, ``states`` the state arguments it reads, ``constants`` the numbers;
    ``replicas`` and ``all_reduce_line`` are set where gradients are summed over replicas;
    ``signs`` are those with which the gradient enters the result, ``(-1,)`` in a descent step.
    """

    optimizer: str
    gradient: str
    value: str
    result: int
    states: tuple[str, ...]
    constants: tuple[float, ...]
    replicas: int | None
    all_reduce_line: int | None
    line: int
    signs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reported:
    """A result that is no parameter's new value.

    ``kind`` is ``mean`` or ``variance`` of the value ``of`` per channel, with what it is divided by
    in ``numbers`` (and what the mean within a variance is); ``loss``, a sum of ``(p · target + q) ·
    log softmax``, with ``p`` and ``q``; ``argument``, returned as it came; ``state``, made of an
    optimizer's state; or ``unknown``. ``place`` is that among the results, ``size`` in elements.
    """

    kind: str
    value: str
    place: int
    of: str | None
    numbers: tuple[float, ...]
    size: int
    line: int


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A use of a cotangent, or a forward operation, that is none of the known idioms."""

    kind: str
    incoming: str | None
    value: str
    line: int


@dataclass(frozen=True, slots=True)
class Recognised:
    """A training step, recognised.

    ``parameters`` are the parameter arguments with their shapes, in order. ``census`` counts
    operations (``op add``), sites (``site conv``), steps (``step mask``) and gradient nodes
    (``gradient conv``). ``canonical`` leads from any SSA name of the function to its value's name.
    ``converts`` are (value, from, to, line).
    """

    name: str
    parameters: Mapping[str, tuple[int, ...]]
    sites: tuple[Site, ...]
    loss: Loss | None
    steps: tuple[BackStep, ...]
    fan_ins: tuple[FanIn, ...]
    gradients: Mapping[str, GradNode]
    updates: Mapping[str, Update]
    reported: tuple[Reported, ...]
    unmatched: tuple[Unmatched, ...]
    converts: tuple[tuple[str, str, str, int], ...]
    canonical: Mapping[str, str]
    census: Mapping[str, int]
