"""What a training step returns beside the new parameters: statistics, the loss, the state."""

from __future__ import annotations

from obligations.stablehlo._backward import Backward
from obligations.stablehlo._forward import size
from obligations.stablehlo._records import Reported
from obligations.stablehlo._terms import is_sum, scaled, terms, tidy, variance
from obligations.stablehlo.value_graph import ELEMENTWISE, Values

#: How many values are looked at for one result.
_REACH = 200


def results(b: Backward) -> tuple[Reported, ...]:
    """Every result that is no parameter's new value, in order."""
    values = b.values
    own = {u.result for u in b.updates.values()}
    states = {values.ids[s] for u in b.updates.values() for s in u.states}
    return tuple(
        _reported(b, place, result, states)
        for place, result in enumerate(values.returned)
        if place not in own
    )


def _reported(b: Backward, place: int, result: int, states: set[int]) -> Reported:
    values = b.values
    value = values[result]

    def found(kind: str, of: str | None = None, numbers: tuple[float, ...] = ()) -> Reported:
        return Reported(kind, value.name, place, of, numbers, size(value), value.line)

    if value.kind == "argument":
        return found("argument")
    statistic = _statistic(values, result)
    if statistic is not None:
        kind, x, numbers = statistic
        return found(kind, values.name(x), numbers)
    if size(value) == 1:
        coefficients = _logarithms(b, result)
        if coefficients is not None:
            return found("loss", None, coefficients)
    return found("state" if _reads(values, result, states) else "unknown")


def _statistic(values: Values, result: int) -> tuple[str, int, tuple[float, ...]] | None:
    """``mean`` or ``variance`` of a value, over all dimensions but one, and what it is divided by.

    The numbers are the divisor and, of a variance, the divisor of the mean in it.
    """
    core, factor = scaled(values, result)
    total = values[core]
    if not is_sum(values, total) or factor == 0:
        return None
    axes, view = sorted(total.attributes["dimensions"]), total.views[0]
    if len(view) - len(axes) != 1 or len(axes) < 2:
        return None
    inner = values[total.inputs[0]]
    if inner.kind != "multiply":
        return "mean", inner.id, (tidy(1 / factor),)
    spread = variance(values, result)
    if spread is None:
        return None
    return "variance", spread.x, (spread.divisor, spread.mean_divisor)


def _logarithms(b: Backward, result: int) -> tuple[float, float] | None:
    """``p`` and ``q`` of ``Σ (p · target + q) · log softmax`` over examples and classes."""
    f, values = b.forward, b.values
    if f.loss is None:
        return None
    softmax, target = values.ids[f.loss.softmax], values.ids[f.loss.target]
    full = size(values[softmax])
    out = [0.0, 0.0]
    stack, seen = [(result, 1.0)], 0
    while stack:
        index, factor = stack.pop()
        value, seen = values[index], seen + 1
        if seen > _REACH:
            return None
        if size(value) == full:
            for product, n in terms(f.known, index).items():
                read = {a[1] for a in product if a[0] == "v"}
                logs = {i for i in read if values[i].kind == "log"}
                if not (len(logs) == 1 and len(read) == len(product)) or read - logs - {target}:
                    return None
                if values[logs.pop()].inputs[0] != softmax:
                    return None
                out[len(read) == 1] += factor * n
        elif is_sum(values, value) or value.kind == "negate":
            stack.append((value.inputs[0], -factor if value.kind == "negate" else factor))
        elif value.kind in ("add", "subtract"):
            sign = 1.0 if value.kind == "add" else -1.0
            stack += [(value.inputs[0], factor), (value.inputs[1], sign * factor)]
        elif value.kind in ("multiply", "divide"):
            core, by = scaled(values, index)
            if core == index or values[core].number is not None:
                return None
            stack.append((core, factor * by))
        else:
            return None
    return tidy(out[0]), tidy(out[1])


def _reads(values: Values, result: int, states: set[int]) -> bool:
    """Whether a result is made of one of the optimizer's states, element by element."""
    made_of = values.above([result], lambda i, _: values[i].kind in ELEMENTWISE, _REACH)
    return not made_of.isdisjoint(states)
