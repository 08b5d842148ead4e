"""Reading StableHLO text: pretty and generic forms, unknown operations, errors with their place."""

import contextlib
import random
import re

import pytest
from step_nets import NETS
from step_renderer import render

from obligations.errors import InputError, Source
from obligations.stablehlo import graph, read, walk


def body(text: str, arguments: str = "%x: tensor<2x3xf32>", result: str = "tensor<2x3xf32>") -> str:
    return f"module @m {{\n  func.func @f({arguments}) -> {result} {{\n{text}\n  }}\n}}\n"


def first(text: str, **around: str) -> object:
    whole = body(text, **around)
    return read(Source("a.mlir", whole)).main.operations[0]


def refused(text: str) -> str:
    with pytest.raises(InputError) as caught:
        read(Source("a.mlir", text))
    return caught.value.render()


IMAGE = "%x: tensor<2x3x8x8xf32>, %w: tensor<4x3x3x3xf32>"
CONV = "(tensor<2x3x8x8xf32>, tensor<4x3x3x3xf32>) -> tensor<2x4x4x4xf32>"
PAIRS = [
    (
        "%y = stablehlo.transpose %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        '%y = "stablehlo.transpose"(%x) <{permutation = array<i64: 1, 0>}>'
        " : (tensor<2x3xf32>) -> tensor<3x2xf32>",
        "%x: tensor<2x3xf32>",
        "tensor<3x2xf32>",
    ),
    (
        "%y = stablehlo.slice %x [0:2:1, 1:3] : (tensor<2x3xf32>) -> tensor<2x2xf32>",
        '%y = "stablehlo.slice"(%x) {start_indices = dense<[0, 1]> : tensor<2xi64>,'
        " limit_indices = array<i64: 2, 3>, strides = dense<1> : tensor<2xi64>}"
        " : (tensor<2x3xf32>) -> tensor<2x2xf32>",
        "%x: tensor<2x3xf32>",
        "tensor<2x2xf32>",
    ),
    (
        "%y = stablehlo.convolution(%x, %w) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1],"
        " window = {stride = [2, 2], pad = [[0, 1], [0, 1]]}"
        f" {{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : {CONV}",
        '%y = "stablehlo.convolution"(%x, %w) <{batch_group_count = 1 : i64, dimension_numbers ='
        " #stablehlo.conv<[b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1]>, feature_group_count = 1 : i64,"
        " padding = dense<[[0, 1], [0, 1]]> : tensor<2x2xi64>, rhs_dilation = array<i64: 1, 1>,"
        f" window_strides = array<i64: 2, 2>}}> : {CONV}",
        IMAGE,
        "tensor<2x4x4x4xf32>",
    ),
    (
        "%y = stablehlo.dot_general %x, %x, contracting_dims = [1] x [1],"
        " precision = [DEFAULT, DEFAULT] : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x2xf32>",
        '%y = "stablehlo.dot_general"(%x, %x) <{dot_dimension_numbers = #stablehlo.dot<'
        "lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>, precision_config ="
        " [#stablehlo<precision DEFAULT>]}> : (tensor<2x3xf32>, tensor<2x3xf32>)"
        " -> tensor<2x2xf32>",
        "%x: tensor<2x3xf32>",
        "tensor<2x2xf32>",
    ),
    (
        "%y = stablehlo.compare  GT, %x, %x,  FLOAT"
        " : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
        '%y = "stablehlo.compare"(%x, %x) {comparison_direction = #stablehlo<comparison_direction'
        " GT>} : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>",
        "%x: tensor<2x3xf32>",
        "tensor<2x3xi1>",
    ),
]


@pytest.mark.parametrize(("pretty", "generic", "arguments", "result"), PAIRS)
def test_generic_form_is_the_pretty_form(
    pretty: str, generic: str, arguments: str, result: str
) -> None:
    end = f"\n return %y : {result}"
    one = read(Source("a", body(pretty + end, arguments, result))).main.operations[0]
    two = read(Source("a", body(generic + end, arguments, result))).main.operations[0]
    assert (one.kind, one.operands, dict(one.attributes)) == (
        two.kind,
        two.operands,
        dict(two.attributes),
    )
    assert one.result_types == two.result_types


def test_what_other_writers_print() -> None:
    text = """
module @jit_step attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<4xf32> {jax.arg_info = "x"}) -> (tensor<f32> {jax.r = ""}) {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = call @relu(%arg0) : (tensor<4xf32>) -> tensor<4xf32>
    %1:2 = stablehlo.reduce(%0 init: %cst), (%0 init: %cst) across dimensions = [0] :
      (tensor<4xf32>, tensor<4xf32>, tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
     reducer(%a: tensor<f32>, %b: tensor<f32>) (%c: tensor<f32>, %d: tensor<f32>)  {
      %5 = stablehlo.add %a, %c : tensor<f32>
      stablehlo.return %5, %d : tensor<f32>, tensor<f32>
    }
    %2:2 = stablehlo.while(%i = %1#0, %j = %cst) : tensor<f32>, tensor<f32>
    cond {
      %5 = stablehlo.compare  LT, %i, %j,  FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %5 : tensor<i1>
    } do {
      stablehlo.return %i, %j : tensor<f32>, tensor<f32>
    }
    %3 = chlo.new_thing %2#1, mode = fast, [1, 2] "note" : tensor<f32>
    "test.sink"(%3) {keep} : (tensor<f32>) -> ()
    return %3 : tensor<f32>
  }
  func.func private @relu(%arg0: tensor<4xf32>) -> tensor<4xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<4xf32>
    %0 = stablehlo.maximum %arg0, %cst : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
"""
    module = read(Source("a", text))
    kinds = [op.kind for op in walk(module.main)]
    expected = "constant call reduce add return while compare return return chlo.new_thing"
    assert " ".join(kinds) == f"{expected} test.sink return"
    unknown = module.main.operations[4]
    assert dict(unknown.attributes) == {"mode": "fast", "part0": (1, 2), "part1": "note"}
    assert unknown.line == 19
    assert module.main.operations[2].results == ("1#0", "1#1")
    edges = graph(module.main)
    assert edges["2#1"]["3"]["positions"] == (0,)
    assert edges.nodes["1#0"]["line"] == 6


ERRORS = [
    ("module @m {", r"a\.mlir:1:11: error: unexpected end of the text; expected '}'"),
    ("hello", r"a\.mlir:1:1: error: unexpected 'hello'; expected 'module'"),
    ("", r"a\.mlir:1:1: error: unexpected end of the text"),
    ("module @m { ? }", r"a\.mlir:1:13: error: unexpected '\?'"),
    (body("return %z : tensor<2x3xf32>"), r"a\.mlir:3:8: error: %z is used before it is defined"),
    (
        body("%xx = stablehlo.negate %x : tensor<2x3xf32>\nreturn %xxx : tensor<2x3xf32>"),
        r"a\.mlir:4:8: error: %xxx .*\n.*\n.*\^\^\^\^\n  did you mean 'xx'\?",
    ),
    (
        body("%x = stablehlo.negate %x : tensor<2x3xf32>\nreturn %x : tensor<2x3xf32>"),
        r"a\.mlir:3:1: error: %x is defined twice",
    ),
    (body("%y = stablehlo.negate(%x : tensor<2x3xf32>"), r"a\.mlir:3:26: error: unexpected ':'"),
    (
        body("%y = stablehlo.negate %x : tensor<2x4xf32>\nreturn %y : tensor<2x4xf32>"),
        r"a\.mlir:3:1: error: negate: the shape of %x is 2×3, should be 2×4",
    ),
    (
        body("%y = stablehlo.transpose %x, dims = [0, 0] : (tensor<2x3xf32>) -> tensor<2x3xf32>"),
        r"error: function @f does not end in a return",
    ),
    (body("return %x, %x : tensor<2x3xf32>, tensor<2x3xf32>"), "returns 2 values and declares 1"),
    (body("return %x : tensor<2x3xf32>", result="tensor<2x3xf64>"), "@f returns tensor<2x3xf64>"),
    (
        body("%y:2 = stablehlo.negate %x : tensor<2x3xf32>\nreturn %x : tensor<2x3xf32>"),
        r"a\.mlir:3:1: error: negate defines 2 values and its signature has 1",
    ),
    (
        body(
            "%y = call @g(%x) : (tensor<2x3xf32>) -> tensor<2x3xf32>\nreturn %y : tensor<2x3xf32>"
        ),
        r"a\.mlir:3:11: error: no function @g",
    ),
    (
        body(f"%y = stablehlo.negate %x, a = {'[' * 5000}"),
        r"a\.mlir:3:93: error: brackets nest deeper than 64",
    ),
    (body(f"%y = stablehlo.negate %x, a = {'9' * 5000} : tensor<2x3xf32>"), "a number this long"),
]


@pytest.mark.parametrize(("text", "expected"), ERRORS)
def test_errors_have_a_place(text: str, expected: str) -> None:
    message = refused(text)
    assert re.search(expected, message), message
    assert max(map(len, message.splitlines())) < 200


TYPES = [
    ("transpose %x, dims = [0, 0]", "(tensor<2x3xf32>) -> tensor<2x3xf32>", "not a permutation"),
    ("transpose %x, dims = [1, 0]", "(tensor<2x3xf32>) -> tensor<2x3xf32>", "should be 3×2"),
    ("reshape %x", "(tensor<2x3xf32>) -> tensor<7xf32>", "as many elements"),
    ("broadcast_in_dim %x, dims = [1, 0]", "(tensor<2x3xf32>) -> tensor<2x3xf32>", "not spread"),
    ("reverse %x, dims = [2]", "tensor<2x3xf32>", "not distinct ones of 2"),
    ("slice %x [0:2, 0:4]", "(tensor<2x3xf32>) -> tensor<2x4xf32>", "outside the operand"),
    (
        "add %x, %x",
        "(tensor<2x3xf32>, tensor<3x2xf32>) -> tensor<2x3xf32>",
        "%x is tensor<2x3xf32>",
    ),
    ("add %x", "tensor<2x3xf32>", "takes 2 operands, has 1"),
    (
        "dot_general %x, %x, contracting_dims = [1] x [0]",
        "(tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>",
        "contracts 3 with 2",
    ),
]


@pytest.mark.parametrize(("text", "signature", "expected"), TYPES)
def test_types_must_fit(text: str, signature: str, expected: str) -> None:
    result = signature.split("->")[-1].strip()
    message = refused(
        body(f"%y = stablehlo.{text} : {signature}\nreturn %y : {result}", result=result)
    )
    assert message.startswith("a.mlir:3:1: error: ")
    assert expected in message


def test_a_convolution_with_other_pads_has_another_shape() -> None:
    text = render(NETS["inverted"], 3).text
    assert read(Source("a", text)).main.operations
    pads = re.search(r"pad = \[\[(-?\d+), (-?\d+)\]", text)
    assert pads is not None
    low, high = int(pads[1]), int(pads[2])
    broken = text.replace(pads[0], f"pad = [[{low + 2}, {high}]", 1)
    assert "convolution: the result is" in refused(broken)


def test_any_damage_is_one_message() -> None:
    text = render(NETS["residual"], 1).text
    words = list(re.finditer(r"%\w+|\d+|\w+|[^\s\w]", text))
    rng = random.Random(7)
    messages = []
    for _ in range(60):
        a, b = rng.choice(words), rng.choice(words)
        damaged = text[: a.start()] + rng.choice(["", b.group()]) + text[a.end() :]
        with contextlib.suppress(_Read):
            messages.append(refused_or_read(damaged))
    assert len(messages) > 30
    assert all(re.match(r"a\.mlir:\d+:\d+: error: ", m) for m in messages)


class _Read(Exception):
    """The damage left a module."""


def refused_or_read(text: str) -> str:
    try:
        read(Source("a.mlir", text))
    except InputError as bad:
        return bad.render()
    raise _Read


def test_reading_speed(benchmark) -> None:  # type: ignore[no-untyped-def]
    """One megabyte is to be read in six seconds on two cores."""
    text = render(NETS["residual"], 0, optimizer="adam").text
    line = text.index("    return")
    ops = [r for r in text[:line].split("\n") if re.match(r" {4}%\w+ = stablehlo\.add %", r)]
    copies = []
    for i in range(1_000_000 // (len(ops[0]) + 9)):
        copies.append(re.sub(r"%\w+ =", f"%copy{i} =", ops[i % len(ops)], count=1))
    whole = text[:line] + "\n".join(copies) + "\n" + text[line:]
    module = benchmark.pedantic(read, [Source("big", whole)], rounds=1)
    assert len(module.main.operations) > 10_000
    assert benchmark.stats.stats.max < 6
