"""Every entry of the operation table against derivatives that use no backward formula.

The tests are generated from the table: a new operation is covered by being in it, every input of
it on its own. Terms of the table are elaborated against its signatures and computed by a small
evaluator kept here, so that templates, signatures, definitions and values are held against each
other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from obligations import ops
from obligations.lean import typed as t
from obligations.lean.elab import BASE_TYPES, Constant, Environment
from obligations.lean.parse import parse_signature, parse_term
from obligations.ops import batchnorm, conv, convolutional, pool
from obligations.ops.base import Array, Backward, Clause, Input, Operation
from obligations.ops.core import align

STEP = 1e-30
BOUND = 1e-11

# Rows and columns are odd and differ, widths differ, and a batch is more than one example.
SIZES = {"N": 2, "ic": 4, "oc": 3, "c": 4, "h": 3, "w": 5, "kH": 3, "kW": 3}
SIZES |= {"a": 5, "K": 4, "m": 2, "n": 6, "s": 2}
SMALL = SIZES | {"h": 2, "w": 3}
KERNELS = ((1, 1), (3, 3), (5, 3), (3, 5), (7, 7))


# -- the table's texts, elaborated ------------------------------------------------------------


@cache
def environment() -> Environment:
    entries: dict[str, tuple[str, str | None]] = {
        n.name: (n.signature, n.definition)
        for n in ops.names().values()
        if n.name not in BASE_TYPES
    }
    entries |= {d.name: (d.signature, d.body) for d in ops.definitions().values()}

    def entry(signature: str, body: str | None) -> Callable[[], Any]:
        return lambda: (parse_signature(signature), None if body is None else parse_term(body))

    return Environment({k: entry(*v) for k, v in entries.items()}, prefixes=("GradNodeB",))


_fresh = itertools.count()


def flat_type(axes: tuple[str, ...]) -> str:
    """The batched length of a value, in Lean: ``(N * (c * (2 * h) * (2 * w)))``."""
    parts = [axis.rpartition("*") for axis in axes]
    factors = [f"({factor} * {name})" if star else name for factor, star, name in parts]
    inner = " * ".join(factors)
    return f"(N * ({inner}))" if len(axes) > 1 else f"(N * {inner})"


def vec(axes: tuple[str, ...]) -> str:
    """The Lean type of a batched value."""
    return f"Vec {flat_type(axes)}"


def signature(op: Operation, type_: str) -> Any:
    """Binders for every symbol of the operation's templates, and the type."""
    given = [(p.symbol, p.type) for p in op.parameters] + [(m.symbol, m.type) for m in op.options]
    binders = [
        f"({' '.join(op.symbols())} : Nat) (xN cotN vN epsStr : String) (bf16 : Bool)",
        *(f"({symbol} : {its})" for symbol, its in given),
        *(f"({i.symbol} : {vec(i.axes)})" for i in op.inputs),
        f"(dy cot : {vec(op.output)})",
    ]
    return parse_signature(f"{' '.join(binders)} : {type_}")


def elaborate(op: Operation, text: str, type_: str) -> Constant:
    """A template of ``op`` as a constant over its symbols; it must have the type ``type_``."""
    binders, result = signature(op, type_)
    return environment().declare(f"template{next(_fresh)}", binders, result, parse_term(text))


def value_of(name: str) -> Callable[..., Any]:
    value = ops.names()[name].value
    assert value is not None, name
    return value


# -- a small evaluator ------------------------------------------------------------------------


class Evaluator:
    """Values of typed terms, by the conventions of :mod:`obligations.ops.base`."""

    def __init__(self) -> None:
        self.jacobians: dict[Any, Array] = {}

    def constant(self, constant: Constant, values: Mapping[str, Any]) -> Any:
        """The body of a constant at values for its binders, by name."""
        assert constant.body is not None
        return self.value(
            constant.body, {p.local.uid: values[p.local.name] for p in constant.params}
        )

    def value(self, term: t.Typed, env: Mapping[int, Any]) -> Any:
        match term:
            case t.Local(uid=uid, value=None):
                return env[uid]
            case t.Local(value=bound) if bound is not None:
                return self.value(bound, env)
            case t.Lit(number, type_):
                return np.array([[float(number)]]) if type_ is t.REAL else number
            case t.Text(text):
                return text
            case t.LetIn(_, body):
                return self.value(body, env)
            case t.Op(op, left, right):
                a, b = self.value(left, env), self.value(right, env)
                return {"*": lambda: a * b, "+": lambda: a + b, "/": lambda: a / b}[op]()
            case t.Items(items):
                return tuple(self.value(i, env) for i in items)
            case t.Bound("fun", local, body):
                if length(local.type) is not None:
                    rows = [self.value(body, {**env, local.uid: i}) for i in self.range(local, env)]
                    return np.concatenate(rows, axis=-1)
                return lambda v: self.value(body, {**env, local.uid: v})
            case t.Bound("∑", local, body):
                return sum(self.value(body, {**env, local.uid: i}) for i in self.range(local, env))
            case t.Apply(fn, arg):
                f, at = self.value(fn, env), self.value(arg, env)
                return f(at) if callable(f) else f[..., at : at + 1]
            case t.Call():
                return self.call(term, env)
        raise AssertionError(f"no value for {term}")

    def range(self, local: t.Local, env: Mapping[int, Any]) -> range:
        size = length(local.type)
        assert size is not None
        return range(self.value(size, env))

    def call(self, term: t.Call, env: Mapping[int, Any]) -> Any:
        if t.type_of(term) is t.TYPE:
            return None
        if term.name == "pdiv":
            return self.pdiv(term, env)
        args = [self.value(a, env) for a in term.args]
        if term.name == "HasVJP.backward":
            certificate, x, dy = args[-3:]
            return certificate.backward(x, dy)
        constant = environment().find(term.name)
        assert constant is not None
        missing = len(constant.params) - len(args)
        if missing:
            assert missing == 1
            return lambda v: self.apply(constant, [*args, v])
        return self.apply(constant, args)

    def apply(self, constant: Constant, args: list[Any]) -> Any:
        if constant.body is not None:
            env = {p.local.uid: v for p, v in zip(constant.params, args, strict=True)}
            return self.value(constant.body, env)
        return value_of(constant.name)(*args)

    def pdiv(self, term: t.Call, env: Mapping[int, Any]) -> Array:
        """Complex step at every input index at once; kept for the other indices of a sum."""
        _, _, f, x, i, j = term.args
        outer = {uid: v for uid, v in env.items() if isinstance(v, int)}
        key = (id(term), *(outer[u] for u in sorted(locals_of(f) | locals_of(x)) if u in outer))
        if key not in self.jacobians:
            point = self.value(x, env)
            seeds = point + 1j * STEP * np.eye(point.shape[-1])
            self.jacobians[key] = self.value(f, env)(seeds).imag / STEP
        jacobian = self.jacobians[key]
        return jacobian[None, self.value(i, env), self.value(j, env), None]

    # -- propositions ----------------------------------------------------------------------

    def equations(self, term: t.Typed, env: Mapping[int, Any]) -> Iterator[tuple[Array, Array]]:
        """Both sides of every equation of a clause, its predicate unfolded."""
        match term:
            case t.Call(name, args):
                constant = environment().find(name)
                assert constant is not None
                assert constant.body is not None, name
                values = [self.value(a, env) for a in args]
                inner = {p.local.uid: v for p, v in zip(constant.params, values, strict=True)}
                yield from self.equations(constant.body, inner)
            case t.Bound("∀", local, body):
                for i in self.range(local, env):
                    yield from self.equations(body, {**env, local.uid: i})
            case t.Op("∧", left, right):
                yield from self.equations(left, env)
                yield from self.equations(right, env)
            case t.Op("=", left, right):
                yield self.value(left, env), self.value(right, env)
            case _:
                raise AssertionError(f"not a clause: {term}")

    def nodes(self, term: t.Typed, env: Mapping[int, Any]) -> Iterator[tuple[str, list[Any]]]:
        """The gradient nodes of a clause with their arguments, in order."""
        match term:
            case t.Call("den", (_, t.Call(name, args))):
                yield name, [self.value(a, env) for a in args]
            case t.Call(name, args) if (constant := environment().find(name)) and constant.body:
                values = [self.value(a, env) for a in args]
                inner = {p.local.uid: v for p, v in zip(constant.params, values, strict=True)}
                yield from self.nodes(constant.body, inner)
            case t.Bound("∀", _, body):
                yield from self.nodes(body, env)
            case t.Op("∧", left, right):
                yield from self.nodes(left, env)
                yield from self.nodes(right, env)
            case t.Op("=", left, _):
                yield from self.nodes(left, env)
            case t.Apply(fn, _):
                yield from self.nodes(fn, env)
            case _:
                raise AssertionError(f"not a clause: {term}")


def length(type_: t.Typed) -> t.Typed | None:
    """``n`` of the type ``Fin n``."""
    type_ = t.resolve(type_)
    return type_.args[0] if isinstance(type_, t.Call) and type_.name == "Fin" else None


def locals_of(term: t.Typed) -> set[int]:
    found, stack = set(), [term]
    while stack:
        part = stack.pop()
        if isinstance(part, t.Local):
            found.add(part.uid)
        stack += t.parts(part)
    return found


# -- samples ----------------------------------------------------------------------------------


def length_of(axes: tuple[str, ...], dims: Mapping[str, int]) -> int:
    parts = [axis.rpartition("*") for axis in axes]
    return dims["N"] * int(np.prod([int(factor or 1) * dims[name] for factor, _, name in parts]))


def operands(op: Operation) -> tuple[Input, ...]:
    """What an operation reads: an input each; three values like its one where it takes any number.

    The further ones have symbols of their own here.
    """
    if not op.is_sum:
        return op.inputs
    (first,) = op.inputs
    return tuple(replace(first, symbol=first.symbol + "'" * i) for i in range(3))


def normal(rng: np.random.Generator, *shape: int) -> Array:
    return rng.normal(size=(1, *shape))


def activations(rng: np.random.Generator, n: int) -> Array:
    """Values on both sides of 0 and of 6, none within 0.1 of either."""
    side = rng.integers(3, size=(1, n))
    side[0, :3] = 0, 1, 2
    low, span = np.array([-0.1, 0.1, 6.1]), np.array([-3, 5.8, 3])
    values: Array = low[side] + span[side] * rng.random((1, n))
    return values


def sample(op: Operation, dims: Mapping[str, int], seed: int = 0) -> dict[str, Any]:
    """Values for every symbol of the operation's templates."""
    rng = np.random.default_rng(seed)
    out = length_of(op.output, dims)
    values: dict[str, Any] = dict(dims) | {"xN": "%x", "cotN": "%c", "vN": "%v", "epsStr": "1e-5"}
    for p in op.parameters:
        shape = [dims[d] for d in p.type.split()[1:]]
        value = normal(rng, *shape or [1])  # a number is a row of one
        values[p.symbol] = 0.1 + np.abs(value) if p.positive else value
    for mask in op.options:
        values[mask.symbol] = rng.integers(3, size=(1, out)).astype(float)
    for operand in operands(op):
        values[operand.symbol] = activations(rng, length_of(operand.axes, dims))
    values |= {"bf16": False, "dy": normal(rng, out)}
    values["cot"] = values["dy"]
    return values


def parameters(op: Operation, values: Mapping[str, Any]) -> dict[str, Any]:
    given = [p.symbol for p in op.parameters] + [m.symbol for m in op.options]
    return {symbol: values[symbol] for symbol in given}


def forward(op: Operation, dims: Mapping[str, int], values: Mapping[str, Any]) -> Array:
    """The value of an operation at a sample, in NumPy."""
    return op.run(dims, parameters(op, values), *(values[i.symbol] for i in operands(op)))


def derivative(f: Callable[[Array], Array], at: Array, cot: Array) -> Array:
    """``Σ_j ∂f_j/∂x_i · cot_j`` at every index ``i``, by complex step."""
    seeds = at + 1j * STEP * np.eye(at.shape[-1])
    slopes: Array = f(seeds).imag / STEP @ cot[0]
    return slopes[None]


def difference(a: Array, b: Array) -> float:
    assert a.shape == b.shape
    return float(np.abs(a - b).max() / max(np.abs(a).max(), np.abs(b).max(), 1e-300))


def name(op: Operation) -> str:
    return " ".join(str(part) for part in op.key if part is not None)


def kernels(op: Operation) -> tuple[tuple[int, ...], ...]:
    """The sides of its kernels: none, the ones there are, or some of any."""
    if op.kernel is None:
        return ((),)
    square = [(side,) * len(op.kernel.axes) for side in op.kernel.sides]
    return tuple(square) or KERNELS


def sized(op: Operation) -> Iterator[tuple[dict[str, int], str]]:
    """The sizes of an operation at each of its kernels, and what to call them."""
    for sides in kernels(op):
        kernel = dict(zip(op.kernel.axes, sides, strict=True)) if op.kernel else {}
        # An axis of an operation that is yet to come.
        dims = dict.fromkeys(op.symbols(), 3) | SIZES | kernel
        yield dims, f"{name(op)} {'x'.join(map(str, sides))}".rstrip()


def cases(
    keep: Callable[[Operation], Any] = lambda op: True,
) -> pytest.MarkDecorator:
    """The operations of the table at their kernel sizes."""
    found = [
        pytest.param(op, dims, id=label)
        for op in ops.operations().values()
        if keep(op)
        for dims, label in sized(op)
    ]
    return pytest.mark.parametrize(("op", "dims"), found)


def steps() -> pytest.MarkDecorator:
    """Every input of every operation with a step back to it, at the kernel sizes."""
    found = [
        pytest.param(op, operand.symbol, dims, id=f"{label}-{operand.symbol}")
        for op in ops.operations().values()
        for operand in operands(op)
        if op.is_sum or op.step(operand.symbol).lean
        for dims, label in sized(op)
    ]
    return pytest.mark.parametrize(("op", "symbol", "dims"), found)


each_operation = pytest.mark.parametrize("op", ops.operations().values(), ids=name)


# -- what is measured: one number per road, so that a mutation can show it red -------------------


def backward_error(
    op: Operation, dims: Mapping[str, int], symbol: str = "x", **changed: Any
) -> float:
    """The emitted step to an input against complex step through ``run``, at every index of it.

    A sum hands its cotangent on.
    """
    values = sample(op, dims) | changed
    if op.is_sum:
        emitted = values["dy"]
    else:
        axes = next(i.axes for i in op.inputs if i.symbol == symbol)
        step = elaborate(op, op.step(symbol).lean, vec(axes))
        emitted = Evaluator().constant(step, values)
    truth = derivative(
        lambda x: forward(op, dims, values | {symbol: x}), values[symbol], values["dy"]
    )
    return difference(emitted, truth)


def node_errors(op: Operation, dims: Mapping[str, int]) -> dict[str, float]:
    """Every clause's nodes against complex step through ``run`` in the parameter they cover."""
    values = sample(op, dims)
    errors = {}
    for clause in op.clauses:
        for text, flag in [(form.text, flag) for form in clause.forms() for flag in (False, True)]:
            constant = elaborate(op, text, "Prop")
            env = {p.local.uid: (values | {"bf16": flag})[p.local.name] for p in constant.params}
            assert constant.body is not None
            nodes = list(Evaluator().nodes(constant.body, env))
            assert len(nodes) == len(clause.covers)
            for symbol, (name, args) in zip(clause.covers, nodes, strict=True):
                bound = ops.names()[name].magnitude
                assert bound is not None
                found, magnitude = value_of(name)(*args), bound(*args)
                assert magnitude.shape == found.shape
                assert np.all(magnitude >= np.abs(found) * (1 - 1e-12))
                point = values[symbol]

                def in_parameter(
                    v: Array, symbol: str = symbol, shape: tuple[int, ...] = point.shape[1:]
                ) -> Array:
                    return forward(op, dims, values | {symbol: v.reshape(-1, *shape)})

                truth = derivative(in_parameter, point.reshape(1, -1), values["cot"])
                errors[f"{symbol} {name} {flag}"] = difference(found, truth)
    return errors


def statement_error(op: Operation, text: str, dims: Mapping[str, int], flag: bool) -> float:
    """Both sides of a printed clause against each other, at every index."""
    constant = elaborate(op, text, "Prop")
    values = sample(op, dims) | {"bf16": flag}
    env = {p.local.uid: values[p.local.name] for p in constant.params}
    assert constant.body is not None
    left, right = zip(*Evaluator().equations(constant.body, env), strict=True)
    return difference(np.concatenate(left, axis=-1), np.concatenate(right, axis=-1))


# -- the tests --------------------------------------------------------------------------------


def test_every_signature_and_definition_elaborates() -> None:
    env = environment()
    names = [*ops.names(), *ops.definitions()]
    assert len(names) > 100
    for name in names:
        if name not in BASE_TYPES:
            assert env.find(name) is not None


def test_every_name_has_one_meaning() -> None:
    """A value, a definition, a proof, or a derivative taken by whoever evaluates it."""
    derivatives = {"pdiv", "HasVJP.backward", "HasVJPAt.backward"}
    for name in ops.names().values():
        if name.name in BASE_TYPES:
            continue
        constant = environment().find(name.name)
        assert constant is not None
        is_type = t.resolve(constant.type) is t.TYPE
        meanings = [name.value is not None, name.definition is not None, name.proves]
        known = is_type or name.name in derivatives
        assert sum(meanings) == (0 if known and not name.definition else 1), name.name
        binders = [p.local.name for p in constant.params]
        assert set(name.inert) <= set(binders), name.name
        assert name.parameter is None or name.parameter in binders


@each_operation
def test_proof_templates_elaborate_to_the_clause(op: Operation) -> None:
    from obligations.lean.syntax import Bind

    for clause in op.clauses:
        for form in clause.forms():
            text, proof, index = form.text, form.proof, form.index
            written = parse_term(text)
            if index is None:
                elaborate(op, proof, text)
                continue
            # A written-out clause: its lemma is applied to the index it is stated at.
            assert isinstance(written, Bind)
            assert written.binders[0].names == (index,)
            binders, _ = signature(op, "Prop")
            name = f"proof{next(_fresh)}"
            stated = (*binders, *written.binders)
            environment().declare(name, stated, written.body, parse_term(proof))


@each_operation
def test_operands_are_symbols_of_the_operation(op: Operation) -> None:
    inputs = [i.symbol for i in op.inputs]
    known = [*inputs, *(p.symbol for p in op.parameters), *(m.symbol for m in op.options)]
    assert len(set(known)) == len(known)
    for step in op.backward:
        assert set(step.operands) <= set(known)
        assert step.defined_in_file is None or step.defined_in_file in ops.definitions()
    covered = [symbol for clause in op.clauses for symbol in clause.covers]
    if op.clauses:
        assert sorted(covered) == sorted(p.symbol for p in op.parameters if p.trained)
    # What a description does not write is called after what it writes, and has no gradient.
    assert {p.follows for p in op.parameters} - {""} <= {p.symbol for p in op.given}
    assert not any(p.trained for p in op.parameters if p.follows)


@each_operation
def test_every_input_has_one_step_and_a_sum_none(op: Operation) -> None:
    assert [s.input for s in op.backward] == ([] if op.is_sum else [i.symbol for i in op.inputs])
    if op.any_shape:
        assert {len(i.axes) for i in op.inputs} | {len(op.output)} == {1}
    for step in op.backward:
        assert op.step(step.input) is step
        # Of one operation there is no step, of another no render emits it.
        missing = op.key == ("depthwise", 2, "symmetric")
        assert (step.lean == "") == missing
        assert (step.token is None) == (missing or op.key == ("conv", 2, "XLA"))


@cases(lambda op: op.forward is not None)
def test_run_is_the_forward_it_prints(op: Operation, dims: Mapping[str, int]) -> None:
    values = sample(op, dims)
    assert op.forward is not None
    printed = Evaluator().constant(elaborate(op, op.forward, vec(op.output)), values)
    assert difference(printed, forward(op, dims, values)) < BOUND


def analyticity_error(op: Operation, dims: Mapping[str, int]) -> float:
    """Complex step against central differences, in one direction of the inputs and parameters."""
    values = sample(op, dims)
    rng = np.random.default_rng(1)
    moved = [x.symbol for x in operands(op)] + [p.symbol for p in op.parameters]
    direction = {s: rng.normal(size=values[s].shape) for s in moved}

    def at(h: complex) -> Array:
        return forward(op, dims, values | {s: values[s] + h * direction[s] for s in moved})

    stepped = at(STEP * 1j).imag / STEP
    return difference(stepped, (at(1e-6).real - at(-1e-6).real) / 2e-6)


@cases()
def test_forward_is_analytic(op: Operation, dims: Mapping[str, int]) -> None:
    assert analyticity_error(op, dims) < 1e-7


@steps()
def test_backward_is_the_derivative_of_the_forward(
    op: Operation, symbol: str, dims: Mapping[str, int]
) -> None:
    assert backward_error(op, dims, symbol) < BOUND


@cases(lambda op: op.clauses)
def test_nodes_are_the_derivative_in_their_parameter(
    op: Operation, dims: Mapping[str, int]
) -> None:
    for name, error in node_errors(op, dims).items():
        assert error < BOUND, name


@pytest.mark.parametrize(
    "op",
    [op for op in ops.operations().values() if op.clauses],
    ids=name,
)
def test_clauses_hold_as_stated(op: Operation) -> None:
    dims = SMALL | {"kH": 3, "kW": 1}
    for clause in op.clauses:
        for form in clause.forms():
            for flag in (False, True):
                assert statement_error(op, form.text, dims, flag) < BOUND


def test_no_mask_is_no_dropout() -> None:
    op = ops.operations()["dropout", 1, None]
    x = sample(op, SIZES)["x"]
    assert op.run(SIZES, {}, x) is x
    assert backward_error(op, SIZES, cd=None) == 0


def test_stages_and_tokens_are_the_librarys() -> None:
    """What the library says each stage is, and which step each render token becomes."""
    assert {s.lean.split()[0]: s.steps for s in ops.stages()} == {
        "cbReluB": (("conv", 1, None), ("bn", 1, None), ("relu", 1, None)),
        "cbReluStridedB": (("conv", 2, "symmetric"), ("bn", 1, None), ("relu", 1, None)),
        "projB": (("conv", 1, None), ("bn", 1, None)),
        "projStridedB": (("conv", 2, "symmetric"), ("bn", 1, None)),
        "cbrB": (("conv", 1, None), ("bn", 1, None), ("relu6", 1, None)),
        "dwbrB": (("depthwise", 1, None), ("bn", 1, None), ("relu6", 1, None)),
        "dwbrBstrided": (("depthwise", 2, "XLA"), ("bn", 1, None), ("relu6", 1, None)),
    }
    steps = {
        f"{token}({', '.join(step.operands)})": step.lean
        for token, found in ops.by_token().items()
        for _, step in found
    }
    assert steps == {
        "selectPosB(x)": "reluMaskB (N * (c * h * w)) x dy",
        "selectMidB(x)": "relu6MaskB (N * (c * h * w)) x dy",
        "bnBatchBack(γ, x)": "bnInB N c h w ε γ x dy",
        "convBackBatched(W)": "cInB N W b dy",
        "convStridedBackBatched(W)": "cStridedInB N W b dy",
        "depthwiseBackBatched(W)": "dInB N W b dy",
        "depthwiseStridedXlaBackBatched(W)": "dStridedXlaInB N W b dy",
        "maxPool3s2BackB(x)": "mpInB N c h w x dy",
        "gapBackBatched()": "gapInB N c h w dy",
        "denseRowBack(W)": "rowDenseBackFlat N a c W dy",
        "dropoutB(cd)": "dropoutOpt cd dy",
    }
    assert ops.by_token()[ops.JOIN_TOKEN] == ()
    assert ops.lookup("conv", 2, "XLA") is ops.operations()["conv", 2, "XLA"]
    assert ops.lookup("maxpool", 2, "symmetric") is ops.operations()["maxpool", 2, None]
    assert ops.lookup("conv", 2) is None
    # A sum has no word: it is written between its addends.
    assert {*ops.words(), ops.SUM_WORD} == {op.word for op in ops.operations().values()}
    assert ops.SUM_WORD not in ops.words()


def switched(clause: Clause) -> tuple[str | None, str | None]:
    form = dict(clause.at).get("switch")
    return (None, None) if form is None else (form.text, form.proof)


def test_clauses_are_the_librarys() -> None:
    """Predicates with their argument orders and what proves them; `∀` where there is none."""
    found = {
        (op.word, op.stride, op.padding, clause.covers): (
            clause.plain.text.partition(",")[0] if clause.plain.index else clause.plain.text,
            clause.plain.proof,
            *switched(clause),
        )
        for op in ops.operations().values()
        for clause in op.clauses
    }

    def weight(of: str, lemma: str) -> tuple[str, str, str, str]:
        return (
            f"GradNodeB.{of}WTiedB N h w xN cotN b x W cot",
            f"{lemma}WTiedB_holds",
            f"GradNodeB.{of}WTiedBAt bf16 N h w xN cotN b x W cot",
            f"{lemma}WTiedBAt_holds bf16",
        )

    def bias(of: str, lemma: str) -> tuple[str, str, None, None]:
        return f"GradNodeB.{of}BTiedB N h w cotN W x b cot", f"{lemma}BTiedB_holds", None, None

    def written(index: str, lemma: str) -> tuple[str, str, None, None]:
        return f"∀ {index}", f"GradNodeB.{lemma}_den cotN W x b cot o", None, None

    assert found == {
        ("conv", 1, None, ("W",)): weight("Conv", "conv"),
        ("conv", 1, None, ("b",)): bias("Conv", "conv"),
        ("conv", 2, "symmetric", ("W",)): weight("ConvStrided", "convStrided"),
        ("conv", 2, "symmetric", ("b",)): bias("ConvStrided", "convStrided"),
        ("conv", 2, "XLA", ("W",)): weight("ConvStridedXla", "convStridedXla"),
        ("conv", 2, "XLA", ("b",)): written("o : Fin oc", "convStridedXlaBGradB"),
        ("depthwise", 1, None, ("W",)): weight("Depthwise", "depthwise"),
        ("depthwise", 1, None, ("b",)): bias("Depthwise", "depthwise"),
        ("depthwise", 2, "XLA", ("W",)): (
            "∀ idx : Fin (c * kH * kW)",
            "GradNodeB.depthwiseStridedXlaWGradB_den xN cotN b x W cot idx",
            "GradNodeB.DepthwiseStridedXlaWTiedBAt bf16 N h w xN cotN b x W cot",
            "depthwiseStridedXlaWTiedBAt_holds bf16",
        ),
        ("depthwise", 2, "XLA", ("b",)): written("o : Fin c", "depthwiseStridedXlaBGradB"),
        ("bn", 1, None, ("γ", "β")): (
            "GradNodeB.BnPairTiedB N c h w vN epsStr cotN ε γ β"
            " (reassocB N c h w x) (reassocB N c h w cot)",
            "bnPairTiedB_holds",
            None,
            None,
        ),
        ("dense", 1, None, ("W",)): (
            "GradNodeB.DenseWTiedB N xN cotN x W b cot",
            "denseWTiedB_holds",
            None,
            None,
        ),
        ("dense", 1, None, ("b",)): (
            "GradNodeB.DenseBTiedB N cotN W (fun _ => 0) b cot",
            "denseBTiedB_holds",
            None,
            None,
        ),
    }


@pytest.mark.parametrize("stage", ops.stages(), ids=lambda s: s.lean.split()[0])
def test_stages_are_their_steps(stage: Any) -> None:
    """Value and backward graph, against complex step through the printed steps."""
    dims = SMALL | {"kH": 3, "kW": 5}
    steps = [ops.operations()[key] for key in stage.steps]
    head = steps[0]
    width = head.output[0]
    dims["c"] = dims[width]
    of_bn = ops.operations()["bn", 1, None].parameters
    own = (replace(p, type=p.type.replace("Vec c", f"Vec {width}")) for p in of_bn)
    whole = replace(head, parameters=(*head.parameters, *own))
    values = sample(whole, dims)

    def through(x: Array) -> Array:
        for step in steps:
            x = step.run(dims, values, x)
        return x

    (operand,) = head.inputs
    printed = elaborate(whole, f"{stage.lean} x", vec(head.output))
    assert difference(Evaluator().constant(printed, values), through(values["x"])) < BOUND
    assert (stage.graph is None) == (head.step("x").defined_in_file is not None)
    if stage.graph is not None:
        graph = f'den ({stage.graph} (h := h) (w := w) W b ε γ β x (.operand "" dy))'
        back = Evaluator().constant(elaborate(whole, graph, vec(operand.axes)), values)
        assert difference(back, derivative(through, values["x"], values["dy"])) < BOUND


# -- symmetric against XLA ---------------------------------------------------------------------


@pytest.mark.parametrize("word", ["conv", "depthwise"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_paddings_differ_in_numbers_only(word: str, kernel: tuple[int, int]) -> None:
    dims = SIZES | dict(zip(("kH", "kW"), kernel, strict=True))
    symmetric, xla = (ops.operations()[word, 2, p] for p in ("symmetric", "XLA"))
    values = sample(symmetric, dims)
    a, b = (op.run(dims, parameters(op, values), values["x"]) for op in (symmetric, xla))
    assert (symmetric.inputs, symmetric.output) == (xla.inputs, xla.output)
    assert difference(a, b) > 0.1


@pytest.mark.parametrize("word", ["conv", "depthwise"])
@pytest.mark.parametrize(("padding", "first"), [("symmetric", 0), ("XLA", 1)])
def test_strided_rows_are_those_of_the_stride_1_form(word: str, padding: Any, first: int) -> None:
    dims = SIZES | {"kH": 5, "kW": 3}
    strided, plain = ops.operations()[word, 2, padding], ops.operations()[word, 1, None]
    values = sample(strided, dims)
    params = parameters(strided, values)
    h, w = dims["h"], dims["w"]
    doubled = dims | {"h": 2 * h, "w": 2 * w}
    full = plain.run(doubled, params, values["x"]).reshape(1, dims["N"], -1, 2 * h, 2 * w)
    kept = full[..., first::2, first::2].reshape(1, -1)
    assert difference(strided.run(dims, params, values["x"]), kept) < BOUND


def test_stride_1_convolution_by_definition() -> None:
    """Against the sum written out with zero padding ``(k - 1) / 2``."""
    op = ops.operations()["conv", 1, None]
    dims = SMALL | {"kH": 3, "kW": 5}
    v = sample(op, dims)
    x = v["x"].reshape(dims["N"], dims["ic"], dims["h"], dims["w"])
    out = np.zeros((dims["N"], dims["oc"], dims["h"], dims["w"]))
    for n, o, r, s in np.ndindex(*out.shape):
        total = v["b"][0, o]
        for c, i, j in np.ndindex(dims["ic"], 3, 5):
            row, col = r + i - 1, s + j - 2
            if 0 <= row < dims["h"] and 0 <= col < dims["w"]:
                total += v["W"][0, o, c, i, j] * x[n, c, row, col]
        out[n, o, r, s] = total
    assert difference(op.run(dims, v, v["x"]), out.reshape(1, -1)) < BOUND


def test_batchnorm_normalizes_with_the_biased_variance() -> None:
    op = ops.operations()["bn", 1, None]
    v = sample(op, SIZES)
    shape = (SIZES["N"], SIZES["c"], SIZES["h"] * SIZES["w"])
    x = v["x"].reshape(shape)
    out = np.empty(shape)
    for c in range(SIZES["c"]):
        channel = x[:, c].ravel()
        scale = v["γ"][0, c] / np.sqrt(channel.var() + v["ε"][0, 0])
        out[:, c] = (x[:, c] - channel.mean()) * scale + v["β"][0, c]
    assert difference(op.run(SIZES, v, v["x"]), out.reshape(1, -1)) < BOUND


# -- pools --------------------------------------------------------------------------------------


def masked_zeros(dims: Mapping[str, int]) -> Array:
    """A relu's output: one image of zeros, one with some, so that windows tie."""
    op = ops.operations()["maxpool", 2, None]
    x = np.maximum(sample(op, dims)["x"], 0).reshape(dims["N"], -1)
    x[0, : x.shape[1] // 2] = 0
    return np.asarray(x.reshape(1, -1))


def test_pool_sends_ties_to_the_first() -> None:
    op = ops.operations()["maxpool", 2, None]
    assert backward_error(op, SIZES, x=masked_zeros(SIZES)) < BOUND
    ones = np.ones((1, 1 * 4 * 6))
    back = pool.max_pool_back(1, 2, 3, ones, np.array([[1.0, 2, 3, 4, 5, 6]]))
    assert back.reshape(4, 6).tolist() == [
        [1, 2, 0, 3, 0, 0],
        [4, 5, 0, 6, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
    ]


def test_window_gap_by_definition() -> None:
    op = ops.operations()["maxpool", 2, None]
    x = masked_zeros(SIZES)
    # Two equal values above 0 in one window are a tie that is no masked zero.
    x[0, -1] = x[0, -2] = 50
    assert op.window_gap is not None
    gap, exempt = op.window_gap(SIZES, x)
    n, c, h, w = (SIZES[s] for s in ("N", "c", "h", "w"))
    image = x.reshape(n * c, 2 * h, 2 * w)
    expected = []
    for k, i, j in np.ndindex(n * c, h, w):
        rows = slice(max(0, 2 * i - 1), 2 * i + 2)
        window = np.sort(image[k, rows, max(0, 2 * j - 1) : 2 * j + 2], axis=None)
        expected.append((window[-1] - window[-2], window[-1] == 0))
    assert np.array_equal(gap[0], [g for g, _ in expected])
    assert np.array_equal(exempt[0], [e for _, e in expected])
    assert 0 < exempt.sum() < exempt.size
    assert np.any((gap == 0) & ~exempt)


# -- the loss -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 900.0])
def test_loss_cotangent_is_the_derivative_of_the_smoothed_cross_entropy(shift: float) -> None:
    n, k = SIZES["N"], SIZES["K"]
    rng = np.random.default_rng(0)
    logits = shift + 3 * normal(rng, n * k)
    target = rng.random((1, n, k))
    target /= target.sum(-1, keepdims=True)
    alpha, scale = np.array([[0.1]]), np.array([[7.0]])
    soft, smooth, graph = (value_of(n) for n in ("softCE", "smoothTarget", "smoothedLossCotGraph"))

    def loss(z: Array) -> Array:
        rows: Array = soft(k, smooth(k, alpha, target), z.reshape(-1, n, k))
        return np.asarray(rows.sum(axis=1) / 7)

    emitted = graph(n, k, alpha, scale, *("%s",) * 5, logits, target.reshape(1, -1))
    assert difference(emitted, derivative(loss, logits, np.ones((1, 1)))) < 1e-10


# -- values and their conventions -----------------------------------------------------------------


def samples_of(constant: Constant, dims: Mapping[str, int], rng: np.random.Generator) -> list[Any]:
    """A value for every binder of a constant, or an error where a binder has none."""
    env: dict[int, Any] = {}
    out = []
    for p in constant.params:
        type_ = t.resolve(p.local.type)
        value: Any
        if type_ is t.NAT:
            value = dims[p.local.name]
        elif type_ is t.STRING:
            value = "%s"
        elif type_ is t.BOOL:
            value = True
        elif type_ is t.REAL:
            value = 0.2 + rng.random((1, 1))
        elif isinstance(type_, t.Bound) and type_.kind == "Pi" and type_.local.type is t.REAL:
            value = np.sinh
        elif isinstance(type_, t.Call) and type_.name in (
            "Vec", "SHlo", "Kernel4", "DepthwiseKernel", "Mat", "Option",
        ):  # fmt: skip
            holder = type_.args[0] if type_.name == "Option" else type_
            assert isinstance(holder, t.Call)
            if holder.name not in ("Vec", "SHlo", "Kernel4", "DepthwiseKernel", "Mat"):
                raise LookupError(p.local.name)
            value = normal(rng, *(Evaluator().value(a, env) for a in holder.args))
        else:
            raise LookupError(p.local.name)
        env[p.local.uid] = value
        out.append(value)
    return out


def valued() -> list[str]:
    """Names whose value takes sizes and arrays only."""
    found = []
    for name in ops.names().values():
        if name.value is None:
            continue
        constant = environment().find(name.name)
        assert constant is not None
        try:
            args = samples_of(constant, SMALL | {"kH": 3, "kW": 1}, np.random.default_rng(0))
        except LookupError:
            continue
        if any(isinstance(a, np.ndarray) for a in args):
            found.append(name.name)
    return found


def call(name: str, args: list[Any]) -> Array:
    found = value_of(name)(*args)
    if hasattr(found, "backward"):
        rng = np.random.default_rng(5)
        dims = dict(zip(("h", "w"), args[-6:-4], strict=True))
        out = args[-2].shape[1] * dims["h"] * dims["w"]
        return np.asarray(found.backward(np.zeros((1, 1)), normal(rng, out)))
    return np.asarray(found)


@pytest.mark.parametrize("name", valued())
def test_probes_are_separate_evaluations(name: str) -> None:
    constant = environment().find(name)
    assert constant is not None
    dims = SMALL | {"kH": 3, "kW": 1}
    draws = [samples_of(constant, dims, np.random.default_rng(s)) for s in range(3)]
    arrays = [i for i, a in enumerate(draws[0]) if isinstance(a, np.ndarray)]
    first = draws[0]
    # Every argument probed, then each alone, with the others of probe length 1.
    for probed in (arrays, *([i] for i in arrays)):
        runs = [[d[i] if i in probed else first[i] for i in range(len(first))] for d in draws]
        stacked = [
            np.concatenate([d[i] for d in draws]) if i in probed else first[i]
            for i in range(len(first))
        ]
        separate = np.concatenate([call(name, run) for run in runs])
        together = np.broadcast_to(call(name, stacked), separate.shape)
        assert np.allclose(separate, together, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", [n for n in valued() if ops.names()[n].inert or "SHlo" in n])
def test_inert_binders_are_exactly_those_without_effect(name: str) -> None:
    entry = ops.names()[name]
    constant = environment().find(name)
    assert constant is not None
    dims = SMALL | {"kH": 3, "kW": 1}
    args, other = (samples_of(constant, dims, np.random.default_rng(s)) for s in (0, 1))
    base = call(name, args)
    for i, p in enumerate(constant.params):
        if t.resolve(p.local.type) is t.NAT or (name == "SHlo.operand" and i > 1):
            continue
        changed: Any = other[i]
        if isinstance(args[i], str):
            changed = "%other"
        elif isinstance(args[i], bool):
            changed = False
        elif callable(args[i]):
            changed = np.floor
        same = np.array_equal(base, call(name, [*args[:i], changed, *args[i + 1 :]]))
        assert same == (p.local.name in entry.inert), p.local.name


@pytest.mark.parametrize("name", [n for n in valued() if n.endswith("Bf16")])
def test_bf16_rounds_operands_and_then_the_exact_sum(name: str) -> None:
    constant = environment().find(name)
    assert constant is not None
    dims = SMALL | {"kH": 3, "kW": 1}
    *axes, _, string, b, x, kernel, e = samples_of(constant, dims, np.random.default_rng(0))

    def rnd(v: Array) -> Array:
        return np.round(v * 4) / 4 + 0.01

    plain, rounding = value_of(name.removesuffix("Bf16")), value_of(name)
    expected = rnd(plain(*axes, string, b, rnd(x), kernel, rnd(e)))
    found = rounding(*axes, rnd, string, b, x, kernel, e)
    assert np.array_equal(found, expected)
    assert difference(found, plain(*axes, string, b, x, kernel, e)) > 1e-3
    same = rounding(*axes, lambda r: r, string, b, x, kernel, e)
    assert np.array_equal(same, plain(*axes, string, b, x, kernel, e))


def test_batch_map_keeps_batches_and_constants() -> None:
    value, aux, pick = (value_of(n) for n in ("batchMap", "batchMapAux", "batchSlice"))
    rng = np.random.default_rng(0)
    x, saved = rng.normal(size=(3, 4, 6)), rng.normal(size=(1, 4, 4))
    rows = x.reshape(3, 4, 2, 3)
    assert np.array_equal(
        value(2, 3, 1, lambda v: v.sum(axis=-1, keepdims=True), x), rows.sum(axis=-1)
    )
    assert np.array_equal(value(2, 3, 1, lambda v: np.ones((1, 1)), x), np.ones((1, 4, 2)))
    got = aux(2, 2, 3, 3, lambda s: lambda v: s[..., :1] * v, saved, x)
    kept = saved.reshape(1, 4, 2, 2)[..., :1] * rows
    assert np.array_equal(got, kept.reshape(3, 4, 6))
    assert np.array_equal(pick(2, 3, x, 1), x[..., 3:])


def test_indices_are_row_major() -> None:
    pair, pick = value_of("finProdFinEquiv"), value_of("batchSlice")
    v = np.arange(6.0)[None]
    matrix = value_of("Mat.unflatten")(2, 3, v)
    for i, j in np.ndindex(2, 3):
        flat = pair(2, 3, (i, j))
        assert v[0, flat] == matrix[0, i, j] == pick(2, 3, v, i)[0, j]
    for name, dims in (("Mat", (2, 3)), ("Tensor3", (2, 3, 4)), ("Kernel4", (2, 3, 4, 5))):
        flat = np.arange(float(np.prod(dims)))[None]
        tensor = value_of(f"{name}.unflatten")(*dims, flat)
        assert tensor.shape == (1, *dims)
        assert tensor[0].ravel().tolist() == flat[0].tolist()
        assert np.array_equal(value_of(f"{name}.flatten")(*dims, tensor), flat)


def test_residuals_add_the_paths() -> None:
    x = np.array([[1.0, 2.0]])
    assert value_of("residual")(2, lambda v: 10 * v, x).tolist() == [[11, 22]]
    joined = value_of("residualProj")(2, 2, lambda v: 10 * v, lambda v: 100 + v, x)
    assert joined.tolist() == [[111, 122]]


def test_dropout_is_the_mask_times_the_input() -> None:
    mask, x = np.array([[0.0, 2.0, 3.0]]), np.array([[1.0, 5.0, 7.0]])
    assert value_of("dropout")(3, mask, x).tolist() == [[0, 10, 21]]
    assert value_of("dropoutOpt")(3, mask, x).tolist() == [[0, 10, 21]]
    assert value_of("dropoutOpt")(3, None, x) is x


def test_align_puts_batch_axes_after_the_probes() -> None:
    a, b = align(np.zeros((3, 5)), np.zeros((1, 2, 4, 5)))
    assert a.shape == (3, 1, 1, 5)
    assert b.shape == (1, 2, 4, 5)


@pytest.mark.parametrize("name", ["flatConv", "depthwiseFlat", "maxPool3s2Flat", "dense"])
def test_large_blocks_are_cut_without_effect(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    constant = environment().find(name)
    assert constant is not None
    args = samples_of(constant, SIZES, np.random.default_rng(0))
    args[-1] = np.random.default_rng(1).normal(size=(2, 5, args[-1].shape[-1]))
    whole = call(name, args)
    monkeypatch.setattr(conv, "_BLOCK", 1)
    assert np.array_equal(whole, call(name, args))
    each = [call(name, [*args[:-1], args[-1][:, i]]) for i in range(5)]
    assert np.allclose(whole, np.stack(each, axis=1), rtol=1e-13, atol=1e-13)


# -- seen red -------------------------------------------------------------------------------------

RED = 1e-3


@steps()
def test_a_changed_forward_is_seen(op: Operation, symbol: str, dims: Mapping[str, int]) -> None:
    def bent(d: Mapping[str, int], params: Mapping[str, Array], *xs: Array) -> Array:
        y = op.run(d, params, *xs)
        half = y.shape[-1] // 2
        return np.concatenate([1.1 * y[..., :half], y[..., half:]], axis=-1)

    assert backward_error(replace(op, run=bent), dims, symbol) > RED


def gate(*says: tuple[str, str]) -> Operation:
    """The product of two values, entry by entry, with a step to each."""
    return Operation(
        word="gate",
        inputs=(Input("x", ("n",)), Input("s", ("n",))),
        output=("n",),
        any_shape=True,
        forward="dropout s x",
        run=lambda dims, params, x, s: x * s,
        backward=tuple(Backward(None, (), lean, input=symbol) for symbol, lean in says),
        linear=False,
    )


def test_each_input_is_held_against_its_own_step() -> None:
    right = gate(("x", "dropout s dy"), ("s", "dropout x dy"))
    crossed = gate(("s", "dropout s dy"), ("x", "dropout x dy"))
    with ops.extended(right):
        assert ops.lookup("gate") is right
    values = sample(right, SIZES)
    printed = Evaluator().constant(elaborate(right, "dropout s x", vec(right.output)), values)
    assert difference(printed, forward(right, SIZES, values)) < BOUND
    assert analyticity_error(right, SIZES) < 1e-7
    for symbol in ("x", "s"):
        assert backward_error(right, SIZES, symbol) < BOUND
        assert backward_error(crossed, SIZES, symbol) > RED


def test_a_sum_that_loses_or_doubles_an_addend_is_seen() -> None:
    op = ops.lookup(ops.SUM_WORD)
    assert op is not None
    lossy = replace(op, run=lambda dims, params, *xs: sum(xs[1:], xs[0]) - xs[-1])
    twice = replace(op, run=lambda dims, params, *xs: sum(xs, xs[0]))
    symbols = [x.symbol for x in operands(op)]
    assert [backward_error(op, SIZES, s) < BOUND for s in symbols] == [True, True, True]
    assert [backward_error(lossy, SIZES, s) > RED for s in symbols] == [False, False, True]
    assert [backward_error(twice, SIZES, s) > RED for s in symbols] == [True, False, False]


@pytest.mark.parametrize("word", ["conv", "depthwise"])
def test_the_other_padding_is_seen(word: str) -> None:
    dims = SIZES
    symmetric, xla = (ops.operations()[word, 2, p] for p in ("symmetric", "XLA"))
    assert backward_error(replace(xla, run=symmetric.run), dims) > RED
    errors = node_errors(replace(xla, run=symmetric.run), dims)
    for name, error in errors.items():
        # A bias gradient is the same sum under either padding.
        assert (error > RED) == name.startswith("W"), name
    if word == "conv":
        assert backward_error(replace(symmetric, run=xla.run), dims) > RED
        assert (
            node_errors(replace(symmetric, run=xla.run), dims)[
                "W SHlo.convStridedWeightGradB False"
            ]
            > RED
        )


@pytest.mark.parametrize("word", ["conv", "depthwise"])
@pytest.mark.parametrize("padding", [None, "XLA"])
def test_a_shifted_tap_is_seen(word: str, padding: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original = convolutional.taps

    def shifted(
        k: int, size: int, count: int, stride: int, phase: int
    ) -> Iterator[tuple[int, slice, slice]]:
        return original(k, size, count, stride, phase + 1)

    op = ops.operations()[word, 1 if padding is None else 2, padding]
    monkeypatch.setattr(convolutional, "taps", shifted)
    dims = SIZES
    assert backward_error(op, dims) > RED
    weight = next(e for name, e in node_errors(op, dims).items() if name.startswith("W"))
    assert weight > RED
    text = op.clauses[0].plain.text
    assert statement_error(op, text, SMALL, False) > RED


def test_the_unbiased_variance_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = batchnorm._saved

    def unbiased(n: int, c: int, area: int, eps: Array, x: Array) -> tuple[Array, Array]:
        unit, inverse = original(n, c, area, eps, x)
        factor = np.sqrt(1 - 1 / (n * area))
        return unit * factor, inverse * factor

    op = ops.operations()["bn", 1, None]
    monkeypatch.setattr(batchnorm, "_saved", unbiased)
    assert backward_error(op, SIZES) > RED
    assert node_errors(op, SIZES)["γ SHlo.bnGammaGradB False"] > RED


@pytest.mark.parametrize(("word", "other"), [("relu", "relu6"), ("relu6", "relu")])
def test_the_other_mask_is_seen(word: str, other: str) -> None:
    op, wrong = (ops.operations()[w, 1, None] for w in (word, other))
    assert backward_error(replace(op, backward=wrong.backward), SIZES) > RED


def test_a_forward_that_is_not_analytic_is_seen() -> None:
    op = ops.operations()["bn", 1, None]

    def modulus(d: Mapping[str, int], params: Mapping[str, Array], x: Array) -> Array:
        return np.asarray(op.run(d, params, x) + np.abs(x) ** 2)

    assert analyticity_error(replace(op, run=modulus), SIZES) > RED


def test_a_pool_that_does_not_accumulate_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    original = pool.max_pool_back

    def once(c: int, h: int, w: int, x: Array, dy: Array) -> Array:
        hit = original(c, h, w, x, np.ones_like(dy))
        return original(c, h, w, x, dy) / np.maximum(hit, 1)

    monkeypatch.setattr(pool, "max_pool_back", once)
    assert backward_error(ops.operations()["maxpool", 2, None], SIZES) > RED
