"""Rounding to bfloat16 against its definition, bit by bit."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from obligations.shadow.bf16 import round_bf16

LARGEST = Fraction((2**8 - 1) * 2**120)
QUANTUM = Fraction(1, 2**133)


def decode(pattern: int) -> float:
    """The bfloat16 with these 16 bits: the upper half of a float32."""
    return float(struct.unpack(">f", struct.pack(">I", pattern << 16))[0])


def exactly(x: float) -> float:
    """The nearest bfloat16 in rational arithmetic, ties to the even significand."""
    value = abs(Fraction(x))
    if value == 0:
        return x
    exponent = math.frexp(x)[1] - 1
    spacing = max(Fraction(2) ** (exponent - 7), QUANTUM)
    steps, rest = divmod(value, spacing)
    steps = int(steps)
    if rest * 2 > spacing or (rest * 2 == spacing and steps % 2 == 1):
        steps += 1
    found = steps * spacing
    result = math.inf if found > LARGEST else float(found)
    return math.copysign(result, x)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_nearest_even(x: float) -> None:
    assert float(round_bf16(np.array(x))) == exactly(x)


@pytest.mark.parametrize(
    "pattern", [0x3F80, 0x3F81, 0x0001, 0x007F, 0x0080, 0x7F7E, 0x4049, 0xC2A5]
)
def test_ties_go_to_even(pattern: int) -> None:
    low, high = decode(pattern), decode(pattern + 1)
    middle = np.array((low + high) / 2)
    even = low if pattern % 2 == 0 else high
    assert float(round_bf16(middle)) == even
    toward_low, toward_high = np.nextafter(middle, low), np.nextafter(middle, high)
    assert float(round_bf16(toward_low)) == low
    assert float(round_bf16(toward_high)) == high


def test_every_bfloat16_is_kept_and_rounding_is_direct() -> None:
    finite = [decode(p) for p in range(0x10000) if (p & 0x7F80) != 0x7F80]
    values = np.array(finite)
    assert np.array_equal(round_bf16(values), values)
    # Through float32 this would round twice, to the even neighbour of the tie.
    x = 1 + 2.0**-8 + 2.0**-40
    assert float(round_bf16(np.array(x))) == 1 + 2.0**-7
    assert float(round_bf16(np.array(np.float64(np.float32(x))))) == 1.0


def test_what_is_not_finite_stays() -> None:
    got = round_bf16(np.array([np.inf, -np.inf, np.nan, 3.4e38, -3.4e38]))
    assert got[0] == np.inf
    assert got[1] == -np.inf
    assert np.isnan(got[2])
    assert got[3] == np.inf
    assert got[4] == -np.inf
