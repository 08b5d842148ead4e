"""The text of tie files: current, readable, sealed, and what was derived."""

from __future__ import annotations

import ast
import difflib
import os
import re
import subprocess
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from obligations.description.reader import load, net_source, read_net
from obligations.errors import ObligationsError, Source
from obligations.lean import printer, syntax as s
from obligations.lean.declaration import Declaration, Tactic
from obligations.lean.source import LeanFile, read
from obligations.statements.gate import differences
from obligations.statements.section import sections
from obligations.statements.tie_file import Derived, derive
from obligations.writing import tie_file as generate
from obligations.writing.docs import docstrings

ROOT = Path(__file__).resolve().parents[2]
TINY = "tests/nets/tiny.net"

# Every net under every setting, and where its file is kept; in `out/` and `tests/golden/` these
# are what `obligations generate NET --set … --out FOLDER` writes.
KEPT = [
    ("resnet34", {}, "out"),
    ("resnet34", {"precision": "f32"}, "tests/golden/f32"),
    ("mobilenetv2", {}, "out"),
    ("mobilenetv2", {"precision": "f32"}, "tests/golden/f32"),
    ("mobilenetv2", {"dropout": "site"}, "tests/golden/site"),
    ("mobilenetv2", {"precision": "f32", "dropout": "site"}, "tests/golden/f32-site"),
]
CASES = [(name, tuple(settings.items())) for name, settings, _ in KEPT] + [(TINY, ())]
each_case = pytest.mark.parametrize(("name", "settings"), CASES)


@cache
def derived(name: str, settings: tuple[tuple[str, str], ...] = ()) -> Derived:
    return derive(load(str(ROOT / name) if "/" in name else name, dict(settings)))


@cache
def text(name: str, settings: tuple[tuple[str, str], ...] = ()) -> str:
    return generate.text(derived(name, settings), checked=True)


@cache
def lean(name: str, settings: tuple[tuple[str, str], ...] = ()) -> LeanFile:
    return read(Source("generated.lean", text(name, settings)))


# -- golden ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "settings", "folder"), KEPT)
def test_the_kept_file_is_current(name: str, settings: dict[str, str], folder: str) -> None:
    net = load(name, settings)
    path = ROOT / folder / f"{net.module}.lean"
    wanted = text(name, tuple(settings.items()))
    found = path.read_text("utf-8")
    if found != wanted:
        lines = difflib.unified_diff(found.split("\n"), wanted.split("\n"), "kept", "now", n=1)
        options = "".join(f" --set {k}={v}" for k, v in settings.items())
        pytest.fail(
            f"`python -m obligations generate {name}{options} --out {folder}` writes another "
            "file now:\n" + "\n".join(list(lines)[:40])
        )


@pytest.mark.parametrize("kept", sorted({p for *_, p in KEPT}))
def test_no_file_is_kept_that_no_case_writes(kept: str) -> None:
    wanted = {f"{load(n, s).module}.lean" for n, s, p in KEPT if p == kept}
    assert {p.name for p in (ROOT / kept).iterdir()} == wanted


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    code = (
        "import sys; from obligations.description.reader import load;"
        "from obligations.statements.tie_file import derive;"
        "from obligations.writing.tie_file import text;"
        "sys.stdout.buffer.write(text(derive(load('mobilenetv2')), checked=True).encode())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert outputs == {text("mobilenetv2").encode()}


def test_no_net_is_named_in_the_package() -> None:
    """What a net is called stands in its description alone, docstrings' examples aside."""
    found = []
    for path in (ROOT / "obligations").rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        prose = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Expr)}
        for node in ast.walk(tree):
            word = None
            if isinstance(node, ast.Constant) and id(node) not in prose:
                word = node.value
            elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                word = node.name
            elif isinstance(node, ast.Name):
                word = node.id
            elif isinstance(node, ast.Attribute):
                word = node.attr
            if isinstance(word, str) and re.search("resnet|mobilenet|r34|mnv2", word, re.I):
                found.append(f"{path.name}:{node.lineno}: {word[:60]}")
    assert found == []


# -- layout ------------------------------------------------------------------------------------


@each_case
def test_lines_are_short_and_end_clean(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    found = text(name, settings)
    for number, line in enumerate(found.split("\n"), 1):
        assert len(line) <= generate.WIDTH, (number, line)
        assert line == line.rstrip(), (number, line)
        assert "\t" not in line
    assert found.endswith("\n")
    assert not found.endswith("\n\n")
    assert "\n\n\n" not in found


@each_case
def test_declarations_are_the_derived_ones(
    name: str, settings: tuple[tuple[str, str], ...]
) -> None:
    """Read back, the file has the terms that the numbers are computed from."""
    net = derived(name, settings).net
    found = lean(name, settings).declarations
    wanted = [o.declaration for o in derived(name, settings).obligations]
    assert [d.full_name for d in found] == [f"{net.namespace}.{d.name}" for d in wanted]
    for d, w in zip(found, wanted, strict=True):
        assert d.binders() == w.binders, w.name
        assert d.statement() == w.type, w.name
        assert d.attributes == w.attributes
        if w.value is not None:
            assert d.value() == w.value, w.name


@each_case
def test_proofs_are_the_derived_ones(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    """Line ends aside, a proof is its tactics, pieces one after another."""

    def words(t: Tactic) -> str:
        pieces = [p if isinstance(p, str) else printer.term(p, width=1_000_000) for p in t.pieces]
        return " ".join([*pieces, *map(words, t.block)])

    def flat(lean_text: str) -> list[str]:
        return re.findall(r"[\w.'₁₂]+|[^\s\w]", lean_text)

    for o in derived(name, settings).obligations:
        d = o.declaration
        if d.value is not None:
            continue
        shown = generate.declaration(d)
        by = "" if len(d.proof) == 1 else " by"
        head = printer.signature(f"{d.keyword} {d.name}", d.binders, d.type, f":={by}")
        assert shown.startswith(head)
        body = shown.removeprefix(head)
        wanted = " ".join(map(words, d.proof))
        if len(d.proof) == 1:
            wanted = wanted.removeprefix("exact ")
        assert flat(body) == flat(wanted), d.name


def test_imports_and_opens() -> None:
    switch, f32 = text("resnet34"), text("resnet34", (("precision", "f32"),))
    at = "import LeanMlir.Proofs.Foundation.GradNodesBAt"
    assert at in switch.splitlines()
    assert at not in f32.splitlines()
    assert "bf16" not in f32


@each_case
def test_every_lemma_without_a_prefix_is_opened(
    name: str, settings: tuple[tuple[str, str], ...]
) -> None:
    found = text(name, settings)
    (listed,) = re.findall(r"open Proofs\.GradNodeB \(([^)]*)\)", found)
    after = found.split("open Proofs.GradNodeB", 1)[1].split(")", 1)[1]
    code = re.sub(r"/-.*?-/", "", after, flags=re.DOTALL)
    used = set(re.findall(r"(?<![\w.])(\w+_holds)\b", code))
    assert set(listed.split()) == used


def test_a_long_tactic_is_wrapped() -> None:
    name = "aLemmaWithALongName"
    argument = s.app("someFunction", "firstArgument", "secondArgument")
    long = s.app(name, *[argument] * 6)
    shown = generate.tactic(Tactic(("have h :=", long)), 2)
    assert shown.startswith("  have h :=\n    aLemmaWithALongName\n      (someFunction")
    rewrite = generate.tactic(Tactic(("rw [", long, ",", "← h", ",", long, "] at k")), 2)
    assert rewrite.startswith("  rw [aLemmaWithALongName\n    (someFunction")
    assert ") ]" not in rewrite
    assert " ," not in rewrite
    words = generate.tactic(Tactic((f"intro {' '.join(f'variable{i}' for i in range(20))}",)), 2)
    for line in (shown + "\n" + rewrite + "\n" + words).split("\n"):
        assert len(line) <= generate.WIDTH
    assert "\n      variable" in words


# -- docstrings --------------------------------------------------------------------------------


@each_case
def test_every_declaration_has_a_docstring(
    name: str, settings: tuple[tuple[str, str], ...]
) -> None:
    docs = docstrings(derived(name, settings))
    for d in lean(name, settings).declarations:
        opening, _, after = d.at.text.partition("/--")
        assert opening == "", d.name
        assert " ".join(after.partition("-/")[0].split()) == " ".join(docs[d.name].split())


@each_case
def test_a_cotangents_docstring_names_its_render_line(
    name: str, settings: tuple[tuple[str, str], ...]
) -> None:
    docs = docstrings(derived(name, settings))
    for o in derived(name, settings).obligations:
        if o.kind == "cotangent":
            assert f"`{o.chain} = " in docs[o.name], o.name


@each_case
def test_no_docstring_is_its_neighbours_with_one_word_changed(
    name: str, settings: tuple[tuple[str, str], ...]
) -> None:
    """Where two neighbours have the same sentence, it is no more than their render lines."""
    docs = docstrings(derived(name, settings))

    def words(doc: str) -> list[str]:
        return re.findall(r"`[^`]*`|\w+", doc)

    for (a, one), (b, two) in pairwise(docs.items()):
        if "as in" in one or "as in" in two or "lemmas used above" in two:
            continue
        left, right = words(one), words(two)
        same = sum(m.size for m in difflib.SequenceMatcher(None, left, right).get_matching_blocks())
        assert same < 0.8 * max(len(left), len(right)), (a, b)


@each_case
def test_docstrings_differ(name: str, settings: tuple[tuple[str, str], ...]) -> None:
    docs = list(docstrings(derived(name, settings)).values())
    assert len(set(docs)) == len(docs)


def test_docstrings_follow_the_description() -> None:
    """What a docstring says moves with the description, it is no text of the net's."""
    source = net_source("resnet34")
    moved = source.text.replace("W1,b1 ← %dn1   g1,bt1 ← %dr1", "W1,b1 ← %dr1   g1,bt1 ← %dn1", 1)
    docs = docstrings(derive(read_net(Source("moved.net", moved)), allow=True))
    assert "Read by `g1`, `bt1` and `%dc1`." in docs["r34IdCotC1"]
    assert "Read by `W1`, `b1` and `%dn1`." in docs["r34IdCotN1"]


def test_a_docstring_tells_a_fan_in_wherever_it_is_and_what_a_step_is_said_to_read() -> None:
    text = (ROOT / TINY).read_text("utf-8")
    for old, new in (
        ("a   = n2 + xin", "a   = n2 + xin + r1"),
        ("convBackBatched(W2)\n", "convBackBatched(W2)\n    %ds = addVB(%dc2, %da)\n"),
        ("bnBatchBack(g1, c1)", "bnBatchBack(g1, c1) from %dr1"),
    ):
        assert old in text
        text = text.replace(old, new, 1)
    docs = docstrings(derive(read_net(Source("tiny.net", text))))
    assert docs["tinyIdCotN1"].startswith(
        "At `n1`: `tinyIdCotC2` back through the convolution `W2`, plus `tinyIdCotA`; the sum kept "
        "where `n1 > 0` (`%dc2 = convBackBatched(W2)`, `%ds = addVB(%dc2, %da)`, "
        "`%dr1 = selectPosB(n1)`). Read by"
    )
    assert "(`%dn1 = bnBatchBack(g1, c1) from %dr1`)" in docs["tinyIdCotC1"]
    assert docs["tinyIdCotIn"].startswith("At the input: `tinyIdCotC1` back through")


# -- the whole header --------------------------------------------------------------------------


def test_the_header_says_whether_it_was_checked() -> None:
    checked, unchecked = (generate.text(derived(TINY), checked=c) for c in (True, False))
    assert "--unchecked" not in checked
    assert "written with `--unchecked`" in unchecked
    assert "No statement was evaluated" in unchecked


def test_the_header_lists_what_was_left_out() -> None:
    found = derived(TINY)
    header = " ".join(text(TINY).split("-/")[1].split())
    assert found.left_out
    for line in found.left_out:
        assert line in header
    assert "## Left out" not in text("resnet34")
    assert "_eq_vjp" not in text(TINY)


def test_the_header_names_a_file_and_no_folder(tmp_path: Path) -> None:
    path = tmp_path / "own.net"
    path.write_text(net_source("resnet34").text, "utf-8")
    found = generate.text(derive(load(str(path))), checked=True)
    assert "from own.net (precision=switch)" in found
    assert str(tmp_path) not in found


def test_the_census_is_in_the_header() -> None:
    for name, without, every in (("resnet34", 110, 146), ("mobilenetv2", 158, 210)):
        header = " ".join(text(name).split("-/")[1].split())
        assert f"{without} tensors are trained" in header
        assert f"{every} with a bias in every convolution" in header


# -- differences -------------------------------------------------------------------------------


def test_a_layer_list_that_is_not_the_forward() -> None:
    source = net_source("resnet34")
    text = source.text.replace("Id a1, Id a2, Down d2,", "Id a2, Id a1, Down d2,")
    assert text != source.text
    net = read_net(Source("swapped.net", text))
    (found,) = differences(net, sections(net))
    assert "the layer is Id a1; resnet34ForwardBFull has Id a2 here" in found.message


@pytest.mark.parametrize("name", ["resnet34", "mobilenetv2", TINY])
def test_no_differences(name: str) -> None:
    net = derived(name).net
    assert differences(net, sections(net)) == []


# -- seal --------------------------------------------------------------------------------------


def test_a_generated_file_is_intact() -> None:
    found = text("resnet34")
    assert generate.intact(found)
    assert generate.intact(found.replace("\n", "\r\n"))
    assert not generate.intact("")
    assert not generate.intact("theorem t : True := trivial\n")


@given(st.data())
def test_any_edit_breaks_the_seal(data: st.DataObject) -> None:
    found = text(TINY)
    start = data.draw(st.integers(0, len(found)))
    stop = data.draw(st.integers(start, min(len(found), start + 3)))
    put = data.draw(st.text(max_size=3))
    edited = found[:start] + put + found[stop:]
    if edited.replace("\r\n", "\n") != found:
        assert not generate.intact(edited)


# -- to disk -----------------------------------------------------------------------------------


def test_written_whole_and_again(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    path = generate.write(text(TINY), folder, "TinyStepTieB")
    assert path.read_text("utf-8") == text(TINY)
    other = generate.text(derived(TINY), checked=False)
    generate.write(other, folder, "TinyStepTieB")
    assert path.read_text("utf-8") == other
    assert [p.name for p in folder.iterdir()] == ["TinyStepTieB.lean"]


@pytest.mark.parametrize(
    "content",
    [
        b"-- by hand\n",
        b"\xff\xfe",
        text(TINY).replace("reluMaskB", "relu6MaskB", 1).encode(),
        (text(TINY) + "\n").encode(),
    ],
)
def test_an_edited_file_is_kept(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "TinyStepTieB.lean"
    path.write_bytes(content)
    with pytest.raises(ObligationsError, match="was edited since it was generated"):
        generate.write(text(TINY), tmp_path, "TinyStepTieB")
    assert path.read_bytes() == content
    generate.write(text(TINY), tmp_path, "TinyStepTieB", force=True)
    assert path.read_text("utf-8") == text(TINY)


def test_the_old_file_stays_when_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = generate.write(text(TINY), tmp_path, "TinyStepTieB")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ObligationsError, match="cannot be written: No space left on device"):
        generate.write(generate.text(derived(TINY), checked=False), tmp_path, "TinyStepTieB")
    assert path.read_text("utf-8") == text(TINY)
    assert [p.name for p in tmp_path.iterdir()] == ["TinyStepTieB.lean"]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    real = tmp_path / "real.lean"
    real.write_text(text(TINY), "utf-8")
    link = tmp_path / "TinyStepTieB.lean"
    link.symlink_to(real)
    other = generate.text(derived(TINY), checked=False)
    generate.write(other, tmp_path, "TinyStepTieB")
    assert link.is_symlink()
    assert real.read_text("utf-8") == other


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ObligationsError, match="cannot be written"):
            generate.write(text(TINY), folder, "TinyStepTieB")
    (tmp_path / "TinyStepTieB.lean").mkdir()
    with pytest.raises(ObligationsError, match="cannot be written"):
        generate.write(text(TINY), tmp_path, "TinyStepTieB")


# -- words -------------------------------------------------------------------------------------


@given(st.text(alphabet="ab `·→-\n", max_size=400))
def test_wrapping_keeps_the_words(words: str) -> None:
    for hang in ("", "  "):
        assert generate.wrap(words, 20, hang=hang).split() == words.split()
    spans = [x for line in generate.wrap(words, 20).split("\n") for x in line.split()]
    assert all(len(x) <= 400 for x in spans)


def test_code_is_not_broken() -> None:
    shown = generate.wrap("a long line that ends near `here = here(a, b)`, and goes on", 40)
    assert "\n`here = here(a, b)`, and goes on" in shown


def test_a_docstring_cannot_end_early() -> None:
    shown = generate.docstring("ends -/ here /- and there")
    assert shown.count("-/") == 1
    assert shown.endswith(" -/")


def test_the_text_above_a_section_cannot_end_early() -> None:
    text = (ROOT / TINY).read_text("utf-8")
    old = "render the identity block"
    assert old in text
    net = read_net(Source("a.net", text.replace(old, "render the -/ def x := 1 /- block")))
    shown = generate.text(derive(net), checked=False)
    assert shown.count("-/") == generate.text(derived(TINY), checked=False).count("-/")
    assert "the render of the - / def x := 1 / - block" in shown


def test_a_declaration_by_one_exact_has_a_term_for_its_proof() -> None:
    declaration = Declaration(
        "theorem", "t", (), s.Ident("P"), proof=(Tactic(("exact", s.Ident("p"))),)
    )
    assert generate.declaration(declaration) == "theorem t : P :=\n  p"
