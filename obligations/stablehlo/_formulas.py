"""The table's formulas in a training step: which one a value's normal form has, and what it reads.

The shapes of the forms (:func:`obligations.ops.shape`) decide; numbers, axes, and which values
stand where, are read. Operations with one forward shape are *alike*: one may be found in the place
of another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from obligations.ops import (
    Form,
    Formula,
    Matched,
    Operation,
    Shape,
    normal,
    operations,
    per_table,
    shape as shape_of,
)
from obligations.stablehlo._terms import Algebra, Atom, Statistic, Terms, leaves

Key: TypeAlias = tuple[str, tuple[Any, ...]]
"""Whether a product has the cotangent as it is or summed, and what of the saved value beside it."""

#: Atoms that do not tell one term of a backward step from another.
_PLAIN = ("p", "i", "dy")


def family(operation: Operation) -> str:
    """What operations that may be found in each other's place have in common."""
    return table().families.get(operation.key, operation.word)


@dataclass(frozen=True, eq=False)
class Pattern:
    """A formula to look for: its normal form with numbers, and the shape of each product."""

    form: Form
    shapes: tuple[Shape, ...]

    @staticmethod
    def of(operation: Operation, formula: Any, sizes: Mapping[str, int] | None = None) -> Pattern:
        """The pattern of a formula of an operation; ``sizes`` are by what its means divide."""
        axes = {p.symbol: p.axes for p in operation.parameters}
        form = normal(formula, axes, sizes or {})
        return Pattern(form, tuple(map(shape_of, form)))

    @cached_property
    def key(self) -> frozenset[Shape]:
        """What all patterns of one shape have in common."""
        return frozenset(self.shapes)

    @cached_property
    def keys(self) -> tuple[Key | None, ...]:
        """What tells each term of a backward step from the others."""
        return tuple(map(key_of, self.shapes))

    @cached_property
    def statistics(self) -> bool:
        """Whether every term has a standard deviation in it."""
        return all("i" in s for s in self.shapes)

    @cached_property
    def symbols(self) -> frozenset[str]:
        """The parameters in it."""
        return frozenset(a[1] for product in self.form for a in _atoms(product) if a[0] == "p")

    @cached_property
    def functions(self) -> frozenset[str]:
        """The elementwise functions in it, as StableHLO calls them."""
        return frozenset(a[1] for p in self.form for a in p if a[0] == "f")

    @property
    def tests(self) -> tuple[tuple[str, float], ...]:
        """Where its masks are open: relations to numbers."""
        return tuple(sorted({a[1:] for p in self.form for a in p if a[0] == "m"}))

    @property
    def numbers(self) -> tuple[float, ...]:
        """The terms' coefficients, then the numbers within functions."""
        return (*self.form.values(), *_within(tuple(self.form)))


def _atoms(product: tuple[Atom, ...]) -> Iterator[Atom]:
    for atom in product:
        yield from _atoms(atom[1]) if atom[0] == "S" else (atom,)


def _within(products: Sequence[tuple[Atom, ...]]) -> tuple[float, ...]:
    """The numbers within the functions of products, each once."""
    inner = [a[2] for p in products for a in p if a[0] == "f"]
    return tuple(sorted({n for form in inner for n in _numbers(form)}))


def _numbers(form: tuple[tuple[tuple[Atom, ...], float], ...]) -> tuple[float, ...]:
    return (*(n for _, n in form), *_within([p for p, _ in form]))


def key_of(shape: Shape) -> Key | None:
    """Where the cotangent stands in a product, if it does."""
    for atom in shape:
        if atom[0] == "S" and "dy" in atom[1]:
            return "summed", tuple(a for a in atom[1] if a not in _PLAIN)
    plain = tuple(a for a in shape if a not in _PLAIN)
    return ("plain", plain) if "dy" in shape else None


@dataclass(frozen=True, eq=False)
class Entry:
    """An operation with its formulas as patterns."""

    operation: Operation
    formula: Formula
    forward: Pattern
    step: Pattern
    gradients: Mapping[str, Pattern]

    @property
    def word(self) -> str:
        return self.operation.word

    @property
    def called(self) -> str:
        """What its backward step is called."""
        return self.formula.called or self.word

    @property
    def rank(self) -> int:
        """How many dimensions its input has."""
        return 1 + len(self.operation.inputs[0].axes)

    def axes(self, last: bool = False) -> tuple[int, ...]:
        """The dimensions its statistics run over, channels first, or ``last``."""
        first, *rest = self.operation.inputs[0].axes
        names = ("N", *rest, first) if last else ("N", first, *rest)
        return tuple(sorted(names.index(a) for a in self.formula.over))


@dataclass(frozen=True, eq=False)
class Recognisers:
    """The table's formulas, those that are alike together, in table order."""

    forwards: Mapping[frozenset[Shape], tuple[Entry, ...]]
    steps: Mapping[tuple[Key | None, ...], tuple[Entry, ...]]
    gradients: Mapping[Key, str]
    functions: frozenset[str]
    matched: Mapping[Matched, str]
    families: Mapping[tuple[Any, ...], str]

    def gradient(self, own: Shape) -> str | None:
        """What a gradient's sum is called; of one that no formula has, the nearest."""
        key = key_of(own)
        if key is None or key in self.gradients:
            return self.gradients.get(key) if key else None
        within = [k for k in self.gradients if k[1] and set(k[1]) <= set(key[1])]
        return self.gradients[max(within, key=lambda k: len(k[1]))] if within else None


@per_table
def table() -> Recognisers:
    """The formulas of the table as it is here and now."""
    entries: list[Entry] = []
    matched: dict[Matched, str] = {}
    for op in operations().values():
        own = op.artifact
        if isinstance(own, Matched):
            matched.setdefault(own, "add" if op.is_sum else op.word)
        elif own is not None:
            gradients = {g.parameter: Pattern.of(op, g.formula) for g in own.gradients}
            forward, step = Pattern.of(op, own.forward), Pattern.of(op, own.step)
            entries.append(Entry(op, own, forward, step, gradients))
    forwards: dict[frozenset[Shape], tuple[Entry, ...]] = {}
    steps: dict[tuple[Key | None, ...], tuple[Entry, ...]] = {}
    kinds: dict[Key, str] = {("summed", ()): "sum"}
    for e in entries:
        forwards[e.forward.key] = (*forwards.get(e.forward.key, ()), e)
        steps[e.step.keys] = (*steps.get(e.step.keys, ()), e)
        for g in e.formula.gradients:
            for key in e.gradients[g.parameter].keys:
                if key is not None:
                    kinds.setdefault(key, g.kind)
    every = [p for e in entries for p in (e.forward, e.step, *e.gradients.values())]
    functions = frozenset().union(*(p.functions for p in every))
    families = {e.operation.key: forwards[e.forward.key][0].word for e in entries}
    for op in operations().values():
        if isinstance(op.artifact, Matched):
            families[op.key] = op.artifact.matcher
    return Recognisers(forwards, steps, kinds, functions, matched, families)


# -- what a normal form reads ----------------------------------------------------------------------


def shape(product: tuple[Atom, ...], g: int | None) -> Shape:
    """The shape of a product of the artifact; ``g`` is the cotangent in it."""
    out = [_kind(atom, g) for atom in product]
    return tuple(sorted((*(k for k in out if k != "m"), *{k for k in out if k == "m"}), key=repr))


def _kind(atom: Atom, g: int | None) -> Any:
    match atom[0]:
        case "v":
            return "dy" if atom[1] == g else "x"
        case "b":
            return "p"
        case "k":
            return "clip"
        case "S" | "bS":
            return ("S", shape(atom[1], g))
        case "f":
            return ("f", atom[1], frozenset(shape(product, g) for product, _ in atom[2]))
    return atom[0]


@dataclass(slots=True)
class Reading:
    """What a form reads: coefficients in the formula's order, then the numbers within functions.

    ``saved`` are the activations, each as often as it is read; ``parameters`` the tensors, with
    the dimensions that they are spread along; ``statistics`` by number.
    """

    numbers: tuple[float, ...]
    saved: list[int] = field(default_factory=list)
    parameters: dict[int, tuple[int, ...]] = field(default_factory=dict)
    statistics: list[int] = field(default_factory=list)
    deviations: list[int] = field(default_factory=list)
    tests: list[tuple[int, str, float]] = field(default_factory=list)
    bounds: tuple[float, float] | None = None


def read(known: Algebra, form: Terms, g: int | None, numbers: tuple[float, ...]) -> Reading:
    """What stands in a form; ``numbers`` are the coefficients of its terms."""
    out = Reading((*numbers, *_within(tuple(form))))
    for product in form:
        for atom in leaves(product):
            match atom[0]:
                case "v" if atom[1] != g:
                    out.saved.append(atom[1])
                case "k":
                    out.saved.append(atom[1])
                    out.bounds = atom[2:]
                case "m":
                    out.saved.append(atom[1])
                    out.tests.append(atom[1:])
                case "b":
                    out.parameters[atom[1]] = atom[2]
                case "d":
                    out.deviations.append(atom[1])
                    out.saved.append(known.statistics[atom[1]].x)
                case "i":
                    out.statistics.append(atom[1])
    return out


def forward_of(
    known: Algebra, form: Terms, formulas: Recognisers
) -> tuple[tuple[Entry, ...], Reading] | None:
    """The entries, all alike, whose forward a form has, and what it reads."""
    shapes = {shape(product, None): n for product, n in form.items()}
    alike = formulas.forwards.get(frozenset(shapes))
    if alike is None or len(shapes) < len(form):
        return None
    numbers = tuple(shapes[s] for s in alike[0].forward.shapes)
    return alike, read(known, form, None, numbers)


def parameters_of(entry: Entry, form: Terms) -> dict[str, tuple[int, tuple[int, ...]]]:
    """The tensors of a forward by symbol, with the dimensions they are spread along."""
    at = {shape(product, None): product for product in form}
    out: dict[str, tuple[int, tuple[int, ...]]] = {}
    for wanted, form_shape in zip(entry.forward.form, entry.forward.shapes, strict=True):
        symbols = [a[1] for a in wanted if a[0] == "p"]
        tensors = [a[1:] for a in at[form_shape] if a[0] == "b"]
        out.update(zip(symbols, tensors, strict=True))
    return out


def step_of(
    known: Algebra, form: Terms, g: int, keys: tuple[Key | None, ...], alike: tuple[Entry, ...]
) -> Reading | None:
    """What a form reads that is linear in ``g`` and whose terms each resemble one of a step's.

    The first, which has the cotangent as it is, is there once.
    """
    pattern = alike[0].step
    if len(form) > len(keys):
        return None
    numbers = [0.0] * len(keys)
    found: list[int] = []
    for product, n in form.items():
        own = shape(product, g)
        if not _linear(product, g) or ("i" in own) != pattern.statistics:
            return None
        key = key_of(own)
        if key is not None and key[0] == "summed" and key not in keys:
            # Of what is summed, only a deviation tells the terms apart; the rest is told.
            key = key[0], tuple(sorted({a for a in key[1] if a == "d"}))
        if key not in keys:
            return None
        at = keys.index(key)
        found.append(at)
        numbers[at] += n
    if found.count(0) != 1:
        return None
    reading = read(known, form, g, tuple(numbers))
    if len(set(reading.statistics)) != pattern.statistics:
        return None
    foreign = (reading.parameters and not pattern.symbols) or (reading.tests and not pattern.tests)
    return None if foreign else reading


def _linear(product: tuple[Atom, ...], g: int) -> bool:
    return list(leaves(product)).count(("v", g)) == 1


def instead_of(known: Algebra, form: Terms, g: int, alike: tuple[Entry, ...]) -> Reading | None:
    """What a form reads that stands where a step with a function should, but is none.

    Its terms are linear in ``g``, with nothing beside but activations and such functions of them.
    """
    functions = alike[0].step.functions
    for product in form:
        beside = [a for a in product if a != ("v", g)]
        if not functions or not _linear(product, g) or len(beside) == len(product):
            return None
        if any(a[0] != "v" and (a[0] != "f" or a[1] not in functions) for a in beside):
            return None
    out = read(known, form, g, tuple(form.values()))
    return out if out.saved else None


def is_exact(
    known: Algebra, form: Terms, g: int, entry: Entry, statistic: Statistic | None
) -> bool:
    """Whether the terms of a step are its formula's, with one parameter and one statistic."""
    if frozenset(shape(p, g) for p in form) != entry.step.key or len(form) != len(entry.step.form):
        return False
    if statistic is None:
        return True
    sums = [a for p in form for a in p if a[0] in ("S", "bS")]
    own = [known.statistics[a[1]].x for p in form for a in leaves(p) if a[0] == "d"]
    return all(tuple(sorted(a[2])) == statistic.axes for a in sums) and set(own) <= {statistic.x}
