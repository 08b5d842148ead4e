"""A StableHLO module as it was read: functions of operations in SSA form, each with its line."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from obligations.errors import Source

#: Deepest chain of calls between functions that is followed.
MAX_CALLS = 32


@dataclass(frozen=True, slots=True)
class TensorType:
    """``tensor<8x3xf32>``: its sizes (-1 where the text has ``?``) and its element type."""

    shape: tuple[int, ...]
    element: str

    @property
    def size(self) -> int:
        """How many elements; negative when a size is unknown."""
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.element}>"


@dataclass(frozen=True, slots=True)
class Dense:
    """The text between the brackets of ``dense<…>`` and the type it is written with, if any."""

    text: str
    type: TensorType | None = None

    @property
    def splat(self) -> float | None:
        """The one value of every element, or None when the elements are listed."""
        return _number(self.text, self.type.element if self.type else "")

    def numbers(self) -> tuple[float, ...]:
        """The elements in row-major order; raises ``ValueError`` for what is not numbers."""
        words = self.text.replace("[", " ").replace("]", " ").replace(",", " ").split()
        element = self.type.element if self.type else ""
        out = tuple(_number(w, element) for w in words)
        if any(n is None for n in out):
            raise ValueError(f"not numbers: dense<{self.text[:40]}>")
        return cast("tuple[float, ...]", out)


Attribute: TypeAlias = "int | float | str | Dense | tuple[Attribute, ...]"


@dataclass(frozen=True, slots=True)
class Argument:
    """A function's or a region's argument: its name without ``%``."""

    name: str
    type: TensorType
    line: int


@dataclass(frozen=True, slots=True)
class Region:
    """The body an operation carries: one block."""

    arguments: tuple[Argument, ...]
    operations: tuple[Operation, ...]

    @property
    def combiner(self) -> str:
        """``"add"``, ``"maximum"``, ``"compare GE"``: the body's one operation, or ``""``.

        Only a body that applies it to the arguments in order and returns the outcome has one.
        """
        if len(self.operations) != 2 or len(self.arguments) < 2:
            return ""
        body, end = self.operations
        if end.kind != "return" or end.operands != body.results:
            return ""
        if body.operands != tuple(a.name for a in self.arguments):
            return ""
        direction = body.attributes.get("direction")
        return f"{body.kind} {direction}" if direction else body.kind


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    ``kind`` is its name without the dialect ``stablehlo.`` (``add``, ``convolution``, ``call``);
    ``results`` and ``operands`` are SSA names without ``%``, a part of several results as ``3#1``.
    ``operand_types`` is empty where the pretty form does not write them.
    """

    kind: str
    results: tuple[str, ...]
    operands: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    regions: tuple[Region, ...]
    operand_types: tuple[TensorType, ...]
    result_types: tuple[TensorType, ...]
    line: int
    column: int = 1

    def ints(self, name: str) -> tuple[int, ...]:
        """The attribute ``name`` as a tuple of integers; empty when there is none."""
        value = self.attributes.get(name, ())
        return cast("tuple[int, ...]", value if isinstance(value, tuple) else (value,))

    @property
    def replicas(self) -> int | None:
        """How many replicas one group of an ``all_reduce`` has, where the text says."""
        groups = self.attributes.get("replica_groups")
        kind = groups.type if isinstance(groups, Dense) else None
        return kind.shape[-1] if kind is not None and kind.shape else None


@dataclass(frozen=True, slots=True)
class Function:
    """A function: typed arguments, result types, and operations in order, the return last."""

    name: str
    arguments: tuple[Argument, ...]
    result_types: tuple[TensorType, ...]
    operations: tuple[Operation, ...]
    line: int

    @property
    def returned(self) -> tuple[str, ...]:
        """The SSA names the function returns."""
        return self.operations[-1].operands


@dataclass(frozen=True, slots=True)
class Module:
    """A module and its functions by name, in the order of the file."""

    name: str
    functions: Mapping[str, Function]
    source: Source = field(repr=False)

    @property
    def main(self) -> Function:
        """The function named ``main``, else the first."""
        return self.functions.get("main") or next(iter(self.functions.values()))


def walk(function: Function) -> Iterator[Operation]:
    """Every operation of a function, those of regions after the one that carries them."""
    stack = list(reversed(function.operations))
    while stack:
        op = stack.pop()
        yield op
        for region in reversed(op.regions):
            stack.extend(reversed(region.operations))


_NUMBER = re.compile(r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?)")


def _number(text: str, element: str) -> float | None:
    """One element: decimal, ``true``/``false``, or the bits of a float in hexadecimal."""
    text = text.strip()
    if text in ("true", "false"):
        return float(text == "true")
    if _NUMBER.fullmatch(text):
        return float(text)
    if re.fullmatch(r"0[xX][0-9A-Fa-f]+", text):
        bits = int(text, 16)
        if element[:1] in ("i", "u", "s"):
            return float(bits)
        if element == "bf16":
            bits, element = bits << 16, "f32"
        width = {"f16": 2, "f64": 8}.get(element, 4)
        if bits >> (8 * width):
            return None
        code = {2: "<e", 4: "<f", 8: "<d"}[width]
        return float(struct.unpack(code, bits.to_bytes(width, "little"))[0])
    return None
