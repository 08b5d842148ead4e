"""A backward convolution as an equation along each axis, solved for what it is the gradient of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from obligations.stablehlo._axes import Axis, Trace
from obligations.stablehlo._forward import ConvRoles
from obligations.stablehlo.value_graph import Value


@dataclass(frozen=True, slots=True)
class Solved:
    """One spatial axis of the forward convolution: ``input = stride·output + dilation·tap - low``.

    Read off the equation of a backward convolution, so it is what that one is the gradient of.
    """

    stride: int
    dilation: int
    low: int


#: A convolution's left operand, right operand and result.
LEFT, RIGHT, RESULT = range(3)


@dataclass(frozen=True, slots=True)
class Gradient:
    """A backward convolution: where the forward one's input, output and kernel stand in it.

    ``operands`` are the left and the right one. ``results`` are, along each spatial axis, scale and
    offset of the places in the result as what is read there counts them.
    """

    value: Value
    roles: ConvRoles
    input: int
    output: int
    kernel: int
    operands: tuple[Trace, Trace]
    results: Sequence[tuple[int, int]]

    def at(self, side: int, letter: str | int) -> int:
        """The dimension ``letter`` of a side."""
        return cast("int", self.value.attributes["dim_numbers"][side].index(letter))

    def axis(self, side: int, letter: str | int) -> Axis:
        """The dimension ``letter`` of an operand, traced."""
        return self.operands[side].axes[self.at(side, letter)]

    def role(self, side: int, letter: str | int) -> Any:
        """What the forward convolution takes that dimension of an operand for."""
        forward = self.roles
        tables = {
            self.input: forward.x_roles,
            self.output: forward.y_roles,
            self.kernel: forward.w_roles,
        }
        dim, roles = self.axis(side, letter).dim, tables[side]
        return None if dim is None or dim >= len(roles) else roles[dim]

    def taps(self, k: int) -> int:
        """The kernel's size along spatial axis ``k``."""
        sizes = (*self.value.views[:2], self.value.view)
        return sizes[self.kernel][self.at(self.kernel, k)]

    def solved(self, k: int) -> Solved:
        """Spatial axis ``k``, the equation between the three sides solved for the input."""
        a = self.value.attributes
        # spread · left = stride · result + reach · right - low, each side affine in what it reads.
        factors = (a["lhs_dilate"][k], -a["rhs_dilate"][k], -a["stride"][k])
        left, right = self.axis(LEFT, k), self.axis(RIGHT, k)
        sides = ((left.scale, left.offset), (right.scale, right.offset), self.results[k])
        slopes = [n * scale for n, (scale, _) in zip(factors, sides, strict=True)]
        rest = a["pad"][k][0] + sum(n * at for n, (_, at) in zip(factors, sides, strict=True))
        sign = 1 if self.input == LEFT else -1
        # What the input is multiplied by is divided out of a result; an operand's is taken for 1.
        unit = a["stride"][k] if self.input == RESULT else 1
        return Solved(
            -sign * slopes[self.output] // unit, -sign * slopes[self.kernel] // unit, sign * rest
        )


def geometry(
    axes: Mapping[Any, Solved], taps: Mapping[Any, int], order: Sequence[Any]
) -> dict[str, Any]:
    """The forward convolution's attributes along its axes; ``order`` names those it strides."""
    every = sorted(axes, key=str)
    return {
        "stride": tuple(axes[r].stride for r in order),
        "dilation": tuple(abs(axes[r].dilation) for r in order),
        "pad_low": tuple(axes[r].low for r in order),
        "phase": tuple(abs(axes[r].dilation) * ((taps[r] - 1) // 2) - axes[r].low for r in every),
        "kernel": tuple(taps[r] for r in every),
    }


def agree(a: Any, b: Any) -> bool:
    """Whether two spatial roles are one, where both are known: rows meet rows."""
    return not (isinstance(a, int) and isinstance(b, int)) or a == b


def fits(layout: tuple[Any, ...], roles: tuple[Any, ...]) -> bool:
    """Whether the gradient's dimensions are the weight's, where both are known."""
    pairs = zip(layout, roles, strict=True)
    return all(a is None or r is None or a == r for a, r in pairs)
