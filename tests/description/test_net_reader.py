"""Net descriptions: what the built-in ones say, and what is said of wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from lark import Lark

from obligations.description.model import Alias, Block, Net, Site
from obligations.description.names import lean_name, show_shape, symbol
from obligations.description.parse import _parser
from obligations.description.reader import load, net_source, read_net
from obligations.errors import InputError, ObligationsError, Source
from obligations.ops import operations

NETS = Path(__file__).resolve().parents[1] / "nets"
TEXTS = {name: net_source(name).text for name in ("resnet34", "mobilenetv2")}
TEXTS["tiny"] = (NETS / "tiny.net").read_text("utf-8")
PARAMETERS = {p.symbol: p for o in operations().values() for p in o.parameters}


def read(text: str, **values: str) -> Net:
    return read_net(Source("a.net", text), values)


def said(net: Net) -> str:
    """Everything a net says, without the places where it says so."""
    return re.sub(r"(span=)?Span\([^)]*\)", "", repr(net).replace(repr(net.source), ""))


def sites(block: Block, kind: str = "") -> str:
    """The sites of a kind as lines: operation, inputs, shape, axes, parameters; other names."""
    lines = []
    for s in block.listing(kind or block.name):
        if isinstance(s, Alias):
            lines.append(f"{s.name} = {s.of} | {show_shape(s.shape)}")
            continue
        key = " ".join(str(k) for k in s.operation.key)
        axes = " ".join(f"{a}={d}" for a, d in s.axes.items())
        names = " ".join(f"{p.render or '·'}:{p.symbol}:{p.lean}:{p.field}" for p in s.parameters)
        shape = show_shape(s.shape)
        lines.append(f"{s.name} = {key} {','.join(s.inputs)} | {shape} | {axes} | {names}".rstrip())
    return "\n".join(lines)


# ---- what the built-in nets say ----


def test_a_block_of_resnet34() -> None:
    net = load("resnet34")
    down = net.blocks["Down"]
    assert (
        sites(down)
        == """\
c1 = conv 2 symmetric xin | oc × h × w | ic=ic h=h w=w oc=oc kH=3 kW=3 | W1:W:W₁:W₁ b1:b:b₁:b₁
n1 = bn 1 None c1 | oc × h × w | c=oc h=h w=w | g1:γ:γ₁:γ₁ bt1:β:β₁:β₁ ·:ε:ε₁:ε₁
r1 = relu 1 None n1 | oc × h × w | c=oc h=h w=w |
c2 = conv 1 None r1 | oc × h × w | ic=oc h=h w=w oc=oc kH=3 kW=3 | W2:W:W₂:W₂ b2:b:b₂:b₂
n2 = bn 1 None c2 | oc × h × w | c=oc h=h w=w | g2:γ:γ₂:γ₂ bt2:β:β₂:β₂ ·:ε:ε₂:ε₂
cp = conv 2 symmetric xin | oc × h × w | ic=ic h=h w=w oc=oc kH=1 kW=1 | Wp:W:Wp:Wp bp:b:bp:bp
np = bn 1 None cp | oc × h × w | c=oc h=h w=w | gp:γ:γp:γp btp:β:βp:βp ·:ε:εp:εp
a = + 1 None n2,np | oc × h × w | n=h*oc*w |
out = relu 1 None a | oc × h × w | c=oc h=h w=w |"""
    )
    assert show_shape(down.input_shape) == "ic × 2h × 2w"
    assert down.record == ("p", "R34DownW")
    (kind,) = down.kinds
    assert (kind.name, kind.certificate) == ("Down", "r34DownBHasVJPAt")
    assert kind.graph is not None
    assert kind.graph.fan_in == ("projection", "body")
    assert kind.input is not None
    assert (kind.input.definition, kind.input.theorem) == ("r34DownCotIn", "r34DownCotIn_eq_vjp")
    assert down.abbreviations == {"a": "r34DownPre"}
    assert down.chain.family == "symmetric"


def test_the_ends_of_resnet34() -> None:
    net = load("resnet34")
    stem, head = net.blocks["stem"], net.blocks["head"]
    assert (
        sites(stem)
        == """\
stc = conv 2 symmetric x | oc × 2h × 2w | ic=ic h=2*h w=2*w oc=oc kH=7 kW=7 | sW:W:Ws:sW sb:b:bs:sb
stn = bn 1 None stc | oc × 2h × 2w | c=oc h=2*h w=2*w | sg:γ:γs:sγ sbt:β:βs:sβ ·:ε:εs:sε
str = relu 1 None stn | oc × 2h × 2w | c=oc h=2*h w=2*w |
out = maxpool 2 None str | oc × h × w | c=oc h=h w=w kH=3 kW=3 |"""
    )
    assert stem.cotangents.labels == {"str": "P", "stn": "N", "stc": "C"}
    assert stem.saved == (("sc", "stc"),)
    assert stem.kinds[0].certificate is None
    assert (
        sites(head)
        == """\
gp = gap 1 None xin | c | c=c h=h w=w |
out = dense 1 None gp | nCls | a=c c=nCls | Wd:W:Wd:Wd bd:b:bd:bd"""
    )
    assert head.kinds[0].certificate_global
    assert head.cotangents.from_certificate == {"Blk"}
    assert head.kinds[0].input is None


def test_the_whole_of_resnet34() -> None:
    net = load("resnet34")
    assert [f"{x.name}:{x.kind}:{x.widths}:{x.space[0]}" for x in net.layers][:5] == [
        "stem:stem:(3, 64):56",
        "a0:Id:(64,):56",
        "a1:Id:(64,):56",
        "a2:Id:(64,):56",
        "d2:Down:(64, 128):28",
    ]
    assert len(net.layers) == 18
    assert len(net.forward.steps) == 18
    assert net.capstone.outputs[0] == "dyE1"
    assert net.capstone.outputs[-1] == "cotPool"
    assert net.capstone.threaded
    assert net.settings == {"precision": "switch"}
    assert net.artifact["c3"] == "s3b3"
    assert (net.scale.channels, net.scale.size, net.scale.height, net.scale.width) == (16, 7, 1, 3)
    assert {n for n, c in net.conventions.items() if c.recorded} == {"biases"}


def test_kinds_share_a_block_and_differ_in_the_flag() -> None:
    net = load("mobilenetv2")
    block = net.blocks["Stride1"]
    *before, out = sites(block, "ExpOnly").split("\n")
    # Without the skip, nothing is added: the output is another name.
    assert out == "out = pn | oc × h × w"
    added = "out = + 1 None pn,xin | oc × h × w | n=h*oc*w |"
    assert sites(block, "Resid").split("\n") == [*before, added]
    names = [s.name for s in block.sites["Resid"]]
    assert [s.name for s in block.sites["ExpOnly"]] == names[:-1]
    assert block.aliases["Resid"] == ()
    assert [(a.name, a.of) for a in block.aliases["ExpOnly"]] == [("out", "pn")]
    expand, residual = block.kinds
    assert net.block_of("Resid") == (block, residual)
    assert expand.pattern == tuple(map(symbol, ("ic", "mid", "oc")))
    assert residual.widths == ("c", "mid")
    assert residual.pattern == tuple(map(symbol, ("c", "mid", "c")))
    assert (expand.flags, residual.flags) == ({"skip": False}, {"skip": True})
    assert residual.graph is not None
    assert residual.graph.transitive
    assert residual.input is not None
    assert residual.input.definition == "mnv2ResidCotIn"


def test_the_padding_convention_chooses_the_operation() -> None:
    block = load("mobilenetv2").blocks["Stride2"]
    (strided,) = [s for s in block.sites["Stride2"] if s.operation.stride == 2]
    assert (strided.operation.word, strided.operation.padding) == ("depthwise", "XLA")
    text = TEXTS["mobilenetv2"].replace("padding     XLA", "padding     symmetric")
    changed = [s for s in read(text).blocks["Stride2"].sites["Stride2"] if s.name == strided.name]
    assert changed[0].operation.padding == "symmetric"


def test_loose_weights_are_found_by_field_or_by_binder() -> None:
    head = load("mobilenetv2").blocks["head"]
    lean = {
        p.render or p.symbol: (p.lean, p.field) for s in head.sites["head"] for p in s.parameters
    }
    assert lean == {
        **{"hW": ("Wh", "hW"), "hb": ("bh", "hb"), "ε": ("εh", "hε")},
        **{"hg": ("γh", "hγ"), "hbt": ("βh", "hβ")},
        **{"Wd": ("Wd", "fcW"), "bd": ("bd", "fcb")},
    }
    stem = load("mobilenetv2").blocks["stem"]
    assert stem.sites["stem"][0].axes["kH"] == symbol("kH")
    assert stem.bundle_pins == {"kH": 3, "kW": 3}
    assert stem.kinds[0].input is not None
    assert stem.kinds[0].input.of == "C"


@pytest.mark.parametrize("value", ["none", "site"])
def test_an_option_turns_a_site_on(value: str) -> None:
    net = load("mobilenetv2", {"dropout": value})
    head = net.blocks["head"]
    (found,) = (s for s in head.listing("head") if s.name == "do")
    assert found.inputs == ("gp",)
    assert show_shape(found.shape) == "oc"
    if value == "none":
        assert isinstance(found, Alias)
        assert head.aliases["head"] == (found,)
        assert found not in head.sites["head"]
    else:
        assert isinstance(found, Site)
        assert head.aliases["head"] == ()
        assert found.operation.word == "dropout"
        assert found.option == {"cd": "cd"}
        assert show_shape((found.axes["n"],)) == "oc"
    assert net.settings == {"precision": "switch", "dropout": value}


def test_every_parameter_points_at_its_name() -> None:
    for name, text in TEXTS.items():
        source = Source(name, text)
        for block in read(text).blocks.values():
            for alias in (a for of_kind in block.aliases.values() for a in of_kind):
                assert slice_of(source, alias.span) == alias.name
            for site in (s for of_kind in block.sites.values() for s in of_kind):
                assert slice_of(source, site.span) == site.name
                for p in site.parameters:
                    assert slice_of(source, p.span) == p.render or not p.trained


def slice_of(source: Source, span: object) -> str:
    line, column, width = span.line, span.column, span.width  # type: ignore[attr-defined]
    return source.line(line)[column - 1 : column - 1 + width]


@pytest.mark.parametrize(
    ("render", "symbol", "lean"),
    [
        *[("W1", "W", "W₁"), ("b2", "b", "b₂"), ("g1", "γ", "γ₁"), ("bt12", "β", "β₁₂")],
        *[("Wp", "W", "Wp"), ("gp", "γ", "γp"), ("btp", "β", "βp"), ("eW", "W", "eW")],
        *[("eg", "γ", "eγ"), ("ebt", "β", "eβ"), ("dbt", "β", "dβ"), ("db", "b", "db")],
        *[("γ1", "γ", "γ₁"), ("scale", "γ", "scale"), ("sg", "γ", "sγ"), ("sbt", "β", "sβ")],
    ],
)
def test_fields_follow_from_the_names_in_the_render(render: str, symbol: str, lean: str) -> None:
    assert lean_name(render, PARAMETERS[symbol]) == lean


@pytest.mark.parametrize(
    ("render", "lean"),
    [("g1", "ε₁"), ("g12", "ε₁₂"), ("gp", "εp"), ("eg", "eε"), ("γ1", "ε₁"), ("scale", "scale")],
)
def test_an_epsilon_is_called_after_its_scale(render: str, lean: str) -> None:
    epsilon = PARAMETERS["ε"]
    assert lean_name(render, epsilon, PARAMETERS[epsilon.follows]) == lean


# ---- the language ----


def test_the_third_net_reads() -> None:
    net = load(str(NETS / "tiny.net"))
    assert [x.kind for x in net.layers] == ["stem", "Id", "Inv", "Down", "head"]
    assert all(k.graph is None and k.input is None for b in net.blocks.values() for k in b.kinds)
    assert show_shape(net.blocks["Inv"].sites["Inv"][-1].shape) == "c × h × w"


@pytest.mark.parametrize("name", TEXTS)
def test_what_may_be_written_otherwise(name: str) -> None:
    text = TEXTS[name]
    plain = text.replace("÷", "/").replace("→", "->").replace("←", "<-")
    variants = {
        "ascii": re.sub(r"(?<=[\d ])×(?=[\d ])", "x", plain),
        "flat": "\n".join(line.strip() for line in text.split("\n")),
        "tabs": text.replace("  ", "\t"),
        "windows": text.replace("\n", "\r\n"),
        "comments": "# one\n\n" + text.replace("\n", "  # say\n#\n\n   # more\n"),
        "no last end": text.rstrip(),
        "byte order mark": "\ufeff" + text,
    }
    wanted = said(read(text))
    for what, variant in variants.items():
        assert variant != text, what
        assert said(read(variant)).replace("3x3 stride", "3×3 stride") == wanted, what


def test_the_order_of_a_blocks_lines_is_free() -> None:
    first, rest = TEXTS["tiny"].split("block Inv", 1)
    lines = "  weights  p : TinyIdW c\n  input    xin : c × h × w\n  incoming dyOut\n"
    assert lines in first
    moved = first.replace(lines, "").replace("\n  render the id", "\n" + lines + "  render the id")
    assert said(read(moved + "block Inv" + rest)) == said(read(TEXTS["tiny"]))


def test_the_grammar_has_no_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="lark"):
        Lark('start: "i" start ["e" start] | "x"', parser="lalr", debug=True)
        assert "Shift/Reduce conflict" in caplog.text
        caplog.clear()
        _parser(debug=True)
    assert caplog.text == ""


# ---- mistakes ----


def _mistakes() -> list[tuple[str, str]]:
    text = (NETS / "mistakes.txt").read_text("utf-8").split("\n== ")[1:]
    found = []
    for section in text:
        name, _, body = section.partition("\n")
        found += [(name, record.strip("\n")) for record in body.strip("\n").split("\n\n")]
    return found


@pytest.mark.parametrize(("name", "record"), _mistakes())
def test_what_is_said_of_a_mistake(name: str, record: str) -> None:
    lines = record.split("\n")
    old = [line[2:] for line in lines if line.startswith("- ")]
    new = [line[2:] for line in lines if line.startswith("+ ")]
    pattern = r"\n[ ]*".join(re.escape(line) for line in old)
    text, count = re.subn(
        rf"^([ ]*){pattern}$",
        lambda m: "\n".join(m[1] + line for line in new),
        TEXTS[name],
        count=1,
        flags=re.M,
    )
    assert count == 1
    with pytest.raises(InputError) as caught:
        read(text)
    shown = caught.value.render().split("\n")
    head = f"a.net:{caught.value.span.line}:{caught.value.span.column}: error: "
    assert shown[0].startswith(head)
    line = caught.value.source.line(caught.value.span.line)
    indent = len(line) - len(line.lstrip()) + 2
    message = re.sub(r"\bline \d+", "line N", shown[0].removeprefix(head))
    result = [f"  {shown[2][indent:]} {message}"]
    result += [f"? {hint.strip()}" for hint in shown[3:]]
    if new != [line.strip()]:
        result.insert(0, f"@ {line.strip()}")
    assert "\n".join(result) == "\n".join(line for line in lines if line[0] not in "-+")


@pytest.mark.parametrize(
    ("old", "new", "marked", "message"),
    [
        ("xin : c × h", "xin : c \u00a0× h", "\u00a0", "unexpected blank U+00A0"),
        ("at 56\n", "at " + "(" * 60 + "\n", "(", "parentheses are nested more than 50 deep"),
        (
            "at 56\n",
            "at 5" + "6" * 5000 + "\n",
            "5" + "6" * 5000,
            "a number has more than 9 digits",
        ),
        ("64 128\n", "(4" + " * 4" * 60 + ")\n", "*", "a product has more than 50 factors"),
    ],
)
def test_limits(old: str, new: str, marked: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(TEXTS["resnet34"].replace(old, new, 1))
    assert caught.value.message == message
    assert slice_of(caught.value.source, caught.value.span) == marked
    assert len(caught.value.render()) < 500


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "\ufeff"])
def test_an_empty_text(text: str) -> None:
    with pytest.raises(InputError, match="there is nothing in this text"):
        read(text)


def test_settings_the_net_does_not_have() -> None:
    with pytest.raises(ObligationsError) as caught:
        load("resnet34", {"precison": "f32"})
    assert caught.value.render() == (
        "error: unknown option 'precison'\n  did you mean 'precision'?"
    )
    with pytest.raises(ObligationsError) as caught:
        load("mobilenetv2", {"dropout": "sites"})
    assert caught.value.render() == (
        "error: option 'dropout' has no value 'sites'\n  did you mean 'site'?"
    )
    with pytest.raises(ObligationsError, match="unknown option 'dropout'"):
        load("resnet34", {"dropout": "site"})


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.net").write_bytes("net A as b\n  input é\n".encode("latin-1"))
    (tmp_path / "empty.net").write_bytes(b"")
    wanted = {
        "resnet43": "neither a built-in net nor a file\n  did you mean 'resnet34'?",
        "resnet43.net": "no such file\n  did you mean 'resnet34'?",
        "a\0b": "cannot be read: embedded null byte",
        str(tmp_path): "cannot be read: Is a directory",
        str(tmp_path / "latin.net"): "latin.net:2:9: error: not UTF-8 text: byte 0xe9\n",
        str(tmp_path / "empty.net"): "there is nothing in this text",
    }
    for name, message in wanted.items():
        with pytest.raises(ObligationsError) as caught:
            load(name)
        assert message in caught.value.render()
    with pytest.raises(ObligationsError) as caught:
        load(str(tmp_path / "latin.net"))
    assert caught.value.render().endswith("    input �\n          ^\n  save the file as UTF-8")


def test_a_name_that_is_used_cannot_be_changed_at_one_place() -> None:
    """Whatever a forward or a chain names, it names by that name alone."""
    text = TEXTS["mobilenetv2"]
    block = slice(text.index("block Stride1"), text.index("block Stride2"))
    lines = re.compile(r"^  (?:\w+ += | +%|[^\n]*←)[^\n]*", re.M)
    exempt = {"if", "then", "else", "to"}
    changed = 0
    for line in lines.finditer(text, block.start, block.stop):
        for token in re.finditer(r"%?[^\W\d]\w*", line.group()):
            name = token.group()
            # Most values of a chain are used without being named.
            named_once = name.startswith("%") and len(re.findall(rf"{name}\b", text[block])) == 1
            if name not in exempt and not named_once:
                place = line.start() + token.start()
                other = "%zz" if name.startswith("%") else "zz"
                with pytest.raises(InputError):
                    read(text[:place] + other + text[place + len(name) :])
                changed += 1
    assert changed > 80


_FRAGMENTS = st.one_of(
    st.sampled_from(["\n", "  ", "(", ")", ",", "%", "%dy", "=", ":", "←", "×", "x", "3×3", "2h"]),
    st.sampled_from(
        ["block", "stem", "head", "layers", "kind K", "if", "with", "at", "0", '"', "#"]
    ),
    st.text(max_size=4),
)


@st.composite
def _mutations(draw: st.DrawFn) -> str:
    """A description in which a few pieces, small or whole lines, are gone, doubled or exchanged."""
    text = TEXTS[draw(st.sampled_from(sorted(TEXTS)))]
    for _ in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            lines = text.split("\n")
            i, j = (draw(st.integers(0, len(lines) - 1)) for _ in range(2))
            lines[i : i + draw(st.integers(0, 2))] = draw(
                st.sampled_from([[], [lines[j]], [lines[i], lines[i]]])
            )
            text = "\n".join(lines)
        else:
            words = re.split(r"(\W)", text)
            i, j = (draw(st.integers(0, len(words) - 1)) for _ in range(2))
            words[i] = draw(st.one_of(st.just(words[j]), _FRAGMENTS))
            text = "".join(words)
    return text


@given(_mutations())
@settings(max_examples=150, deadline=None)
def test_no_text_is_met_with_a_traceback(text: str) -> None:
    error = None
    try:
        net = read(text)
    except InputError as raised:
        error = raised
    if error is None:
        assert len(net.layers) == len(net.capstone.outputs) + 1
        return
    span = error.span
    assert 1 <= span.line <= text.count("\n") + 1
    assert 1 <= span.column <= len(error.source.line(span.line)) + 1
    assert error.render().startswith(f"a.net:{span.line}:{span.column}: error: ")
