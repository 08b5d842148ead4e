"""Render chains: the notation of render comments, and what is said of chains that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from obligations.description.model import Chain
from obligations.description.reader import parse_chain
from obligations.description.render import Call, Choice, Operand
from obligations.errors import InputError, Source, Span


def chain(text: str) -> Chain:
    return parse_chain(Source("a.render", text))


def shown(value: Call | Choice | Operand) -> str:
    match value:
        case Operand(text):
            return text
        case Call(token, operands, from_=from_):
            call = f"{token}({', '.join(o.text for o in operands)})" if operands else token
            return call if from_ is None else f"{call} from {from_.text}"
        case Choice(flag, then, otherwise):
            return f"if {flag} then {shown(then)} else {shown(otherwise)}"


def lines(read: Chain) -> list[str]:
    return [f"{s.name} = {shown(s.value)}" for s in read.statements] + [
        f"{r.parameter} ← {r.cotangent}" for r in read.reads
    ]


DOWN = """\
%da  = selectPosB(a)   %dn2 = bnBatchBack(g2,c2)  %dc2 = convBackBatched(W2)
%dr1 = selectPosB(n1)  %dn1 = bnBatchBack(g1,c1)  %dc1 = convStridedBackBatched(W1)
%dnp = bnBatchBack(gp,cp)                          %dcp = convStridedBackBatched(Wp)
%dx  = addVB(%dc1, %dcp)
"""


def test_the_notation_as_it_stands() -> None:
    assert lines(chain(DOWN)) == [
        "%da = selectPosB(a)",
        "%dn2 = bnBatchBack(g2, c2)",
        "%dc2 = convBackBatched(W2)",
        "%dr1 = selectPosB(n1)",
        "%dn1 = bnBatchBack(g1, c1)",
        "%dc1 = convStridedBackBatched(W1)",
        "%dnp = bnBatchBack(gp, cp)",
        "%dcp = convStridedBackBatched(Wp)",
        "%dx = addVB(%dc1, %dcp)",
    ]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("%dgp = gapBackBatched", ["%dgp = gapBackBatched"]),
        ("%dgp = gapBackBatched()", ["%dgp = gapBackBatched"]),
        ("%a=f(x)%b=g(%a,y)", ["%a = f(x)", "%b = g(%a, y)"]),
        (
            "%dx  = if skip then addVB(%dy, %dy) else %dy",
            ["%dx = if skip then addVB(%dy, %dy) else %dy"],
        ),
        ("%a = if f then %dy else g", ["%a = if f then %dy else g"]),
        ("%a = %dy W1,b1 <- %a", ["%a = %dy", "W1 ← %a", "b1 ← %a"]),
        ("%a = gap W1 ← %a", ["%a = gap", "W1 ← %a"]),
        ("%a = f(x) from %dy%b=g from %a", ["%a = f(x) from %dy", "%b = g from %a"]),
        (
            "%a = if f then g(x) from %dy else h from %dy W ← %a",
            ["%a = if f then g(x) from %dy else h from %dy", "W ← %a"],
        ),
        # The word is one only behind an operation.
        ("%a = from(from, x) from %dy", ["%a = from(from, x) from %dy"]),
        (
            "dW,db ← %dy, dg,dbt ← %dy,\n  pW,pb ← %dy",
            [f"{p} ← %dy" for p in ("dW", "db", "dg", "dbt", "pW", "pb")],
        ),
        (
            "W1,b1 ← %a  g1,bt1←%dy  %a = f",
            ["%a = f", "W1 ← %a", "b1 ← %a", "g1 ← %dy", "bt1 ← %dy"],
        ),
        ("\n\n# first\n%a = f(x,  # the input\n  y)\n\n", ["%a = f(x, y)"]),
    ],
)
def test_ways_to_write_a_chain(text: str, wanted: list[str]) -> None:
    assert lines(chain(text)) == wanted


def test_places_are_those_of_the_names() -> None:
    text = DOWN + "W1,b1 ← %dn1   g1,bt1 <- %dr1\n%r = if skip then addVB(%dx, %dy) else %dx\n"
    text += "%s = selectPosB(a) from %r\n"
    source = Source("a.render", text)
    read = parse_chain(source, title="down", family="symmetric")
    assert (read.title, read.family) == ("down", "symmetric")

    def at(span: Span) -> str:
        return source.line(span.line)[span.column - 1 : span.column - 1 + span.width]

    def check(value: Call | Choice | Operand) -> None:
        match value:
            case Operand(name, span):
                assert at(span) == name
            case Call(token, operands, span, from_):
                assert at(span) == token
                for operand in (*operands, *([] if from_ is None else [from_])):
                    check(operand)
            case Choice(flag, then, otherwise, span):
                assert at(span) == flag
                check(then)
                check(otherwise)

    for statement in read.statements:
        assert at(statement.span) == statement.name
        check(statement.value)
    for r in read.reads:
        assert (at(r.span), at(r.cotangent_span)) == (r.parameter, r.cotangent)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "%a = f(x)\n%b = g(%c)",
            "a.render:2:8: error: undefined value '%c'\n"
            "  %b = g(%c)\n"
            "         ^^\n"
            "  did you mean '%a'?",
        ),
        (
            "%a = f(%b)  %b = g(x)",
            "a.render:1:8: error: %a uses %b, which comes later, on line 1: "
            "a cycle, or out of order\n"
            "  %a = f(%b)  %b = g(x)\n"
            "         ^^",
        ),
        (
            "%a = f(x, %a)",
            "a.render:1:11: error: %a is defined by itself: a cycle\n"
            "  %a = f(x, %a)\n"
            "            ^^",
        ),
        (
            "%a = f(x)\n%a = g(x)",
            "a.render:2:1: error: %a is defined twice: first on line 1\n  %a = g(x)\n  ^^",
        ),
        (
            "%dy = f(x)",
            "a.render:1:1: error: %dy is the cotangent that comes in, and is not defined\n"
            "  %dy = f(x)\n"
            "  ^^^",
        ),
        (
            "%a = f(x)  W,b ← %e",
            "a.render:1:18: error: W reads the undefined value '%e'\n"
            "  %a = f(x)  W,b ← %e\n"
            "                   ^^\n"
            "  did you mean '%a'?",
        ),
        (
            "%a = f(x))",
            "a.render:1:10: error: unexpected ')': expected a name, a value (%name), "
            "the end of the line, the end of the text or 'from'\n"
            "  %a = f(x))\n"
            "           ^",
        ),
        (
            "%a = f(x) from %b",
            "a.render:1:16: error: undefined value '%b'\n"
            "  %a = f(x) from %b\n"
            "                 ^^\n"
            "  valid here: %dy",
        ),
        (
            "%a = f(x) from %a",
            "a.render:1:16: error: %a is defined by itself: a cycle\n"
            "  %a = f(x) from %a\n"
            "                 ^^",
        ),
        (
            "%a = f(x) from b",
            "a.render:1:16: error: unexpected 'b': expected a value (%name)\n"
            "  %a = f(x) from b\n"
            "                 ^",
        ),
        (
            "%a f(x)",
            "a.render:1:4: error: unexpected 'f': expected '='\n  %a f(x)\n     ^",
        ),
        (
            "%a = if skip then f(x)\n# more\n",
            "a.render:1:22: error: the text ends too early: expected 'else'\n"
            "  %a = if skip then f(x)\n"
            "                       ^",
        ),
        ("", "a.render:1:1: error: there is nothing in this text"),
    ],
)
def test_what_is_said_of_a_chain_that_cannot_be(text: str, error: str) -> None:
    with pytest.raises(InputError) as caught:
        chain(text)
    assert caught.value.render() == error


_NAMES = st.from_regex(r"[A-Za-zγβε][A-Za-z0-9_γ']{0,3}", fullmatch=True).filter(
    lambda n: n not in ("if", "then", "else", "from")
)
_GAP = st.sampled_from(["", " ", "   ", "\t"])


@st.composite
def _chains(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A chain as text, and what it says."""
    values = ["%dy"]
    text, said = "", []
    for i in range(draw(st.integers(1, 6))):
        name = f"%v{i}"

        def operand() -> str:
            return draw(st.one_of(_NAMES, st.sampled_from(values)))

        def call() -> str:
            token, operands = draw(_NAMES), [operand() for _ in range(draw(st.integers(0, 3)))]
            written = f"{token}({', '.join(operands)})" if operands else token
            said = draw(st.sampled_from(["", *values]))
            return f"{written} from {said}" if said else written

        def value() -> str:
            return draw(st.sampled_from(values)) if draw(st.booleans()) else call()

        what = (
            f"if {draw(_NAMES)} then {value()} else {value()}" if draw(st.booleans()) else value()
        )
        said.append(f"{name} = {what}")
        gap = draw(_GAP)
        text += f"{name}{gap}={gap}{what.replace(', ', ',' + draw(_GAP))}"
        text += draw(st.sampled_from([" ", "   ", "\n", "\n\n  ", " # then\n"]))
        values.append(name)
    reads = draw(st.lists(st.tuples(_NAMES, st.sampled_from(values)), max_size=4))
    arrow = draw(st.sampled_from([" ← ", "<-", " <- ", "←"]))
    text += draw(st.sampled_from([", ", "  ", "\n", ",\n"])).join(p + arrow + v for p, v in reads)
    return text, said + [f"{p} ← {v}" for p, v in reads]


@given(_chains())
@settings(max_examples=200, deadline=None)
@pytest.mark.slow
def test_a_chain_reads_as_it_was_meant(made: tuple[str, list[str]]) -> None:
    text, said = made
    assert lines(chain(text)) == said


@given(st.text(alphabet="%=,()←<- \n#abifrom", max_size=40))
@settings(max_examples=200, deadline=None)
def test_any_text_reads_or_is_refused(text: str) -> None:
    refused = None
    try:
        read = chain(text)
    except InputError as error:
        refused = error
    if refused is None:
        assert lines(chain("\n".join(lines(read)))) == lines(read)
    else:
        assert refused.render().startswith(f"a.render:{refused.span.line}:")
        assert 1 <= refused.span.line <= text.count("\n") + 1
