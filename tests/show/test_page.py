"""Pages: opened in a browser, measured, and read as a person would."""

from __future__ import annotations

import html
import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from obligations.cli import run
from obligations.description.reader import read_net
from obligations.errors import ObligationsError, Source
from obligations.ledger.rows import Ledger, Row, Zero
from obligations.ledger.verdicts import Verdict
from obligations.resources import built_in_nets
from obligations.show import page, pictures, svg
from obligations.statements.gate import differences
from obligations.statements.section import sections

HERE = Path(__file__).parent
TINY = (HERE.parent / "nets" / "tiny.net").read_text("utf-8")
MEASURE = (HERE / "measure.js").read_text("utf-8")
NARROW, WIDE = 360, 1280


# -- the browser -------------------------------------------------------------------------------


def opened(
    browser: str,
    pages: Mapping[str, str],
    widths: tuple[int, ...],
    folder: Path,
    *,
    dark: bool = False,
) -> dict[tuple[str, int], Any]:
    """Lay every page out at every width; what :file:`measure.js` says of each."""
    frames = "".join(
        f'<iframe data-name="{html.escape(name)}" data-width="{width}" '
        f'style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(content)}"></iframe>'
        for name, content in pages.items()
        for width in widths
    )
    script = """
      addEventListener("load", () => {
        const out = [];
        for (const f of document.querySelectorAll("iframe")) {
          try { out.push([f.dataset.name, +f.dataset.width, measure(f.contentWindow)]); }
          catch (e) { out.push([f.dataset.name, +f.dataset.width, {error: String(e.stack)}]); }
        }
        document.body.innerHTML = "";
        document.body.append(Object.assign(document.createElement("pre"),
          {id: "measured", textContent: JSON.stringify(out)}));
      });"""
    file = folder / "frames.html"
    file.write_text(
        f"<!doctype html><meta charset=utf-8><body>{frames}<script>{MEASURE}{script}</script>",
        "utf-8",
    )
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={WIDE + 40},900",
        *(["--blink-settings=preferredColorScheme=0"] if dark else []),
        "--dump-dom",
        file.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    dom = done.stdout.decode("utf-8")
    found = re.search(r'<pre id="measured">(.*?)</pre>', dom, re.DOTALL)
    assert found, done.stderr.decode("utf-8", "replace")[-2000:]
    measured = json.loads(html.unescape(found[1]))
    for name, width, said in measured:
        assert "error" not in said, f"{name} at {width}: {said}"
    return {(name, width): said for name, width, said in measured}


# -- pages -------------------------------------------------------------------------------------


HOSTILE = "<script>document.title = 1</script> & \"'<b>"


def chapter(content: str, ledger: Ledger | None = None) -> page.Chapter:
    net = read_net(Source("nets/x.net", content))
    parts = sections(net)
    return page.net_chapter(net, parts, differences(net, parts), ledger)


def broken() -> str:
    """ResNet-34's description with a mistake of every sort."""
    content = built_in_nets()["resnet34"].read_text("utf-8")
    for old, new in (
        ("W1,b1 ← %dn1   g1,bt1 ← %dr1", "W1,b1 ← %dr1   g1,bt1 ← %dr1"),
        ("W2,b2 ← %dn2   g2,bt2 ← %da", "W2,b2 ← %dn2   g2,bt2 ← %dn2"),
        ("selectPosB(n1)", "selectPosB(a)"),
        ("addVB(%dc1, %da)", "addVB(%dc1, %dy)"),
        ("downBackGradB, symmetric", "downBackGradB, XLA"),
        ("bnBatchBack(gp,cp)", "bnBatchBack(gp,c1)"),
        ("%dc1 = convStridedBackBatched(W1)", "%dc1 = convBackBatched(W1)"),
        ("   %dgp = gapBackBatched", ""),
    ):
        assert old in content
        content = content.replace(old, new, 1)
    return content


def long_names() -> str:
    """The tiny net with names that are long, and wide where a terminal is concerned."""
    content = TINY
    for old, new in (
        ("n1", "normalised_activation_of_the_first_layer"),
        ("W1", "first_layer_weight_of_the_block"),
        ("%dr1", "%cotangent_at_the_first_normalisation"),
        ("bt2", "second_shift_parameter"),
    ):
        content = re.sub(rf"(?<![\w%]){re.escape(old)}(?!\w)", new, content)
    return content.replace("(normalised_activation_of_the_first_layer)", "(a)", 1)


def ledger(failing: bool) -> Ledger:
    rows = [
        Row(
            "tinyIdCotA",
            "cotangent",
            "Id N=2 c=3 h=2 w=2",
            {"cotangent": 2e-16},
            0.02,
            Verdict.HOLDS,
        ),
        Row("tinyIdTiedB", "bundle", "Id N=2 c=3 h=2 w=2", {"statement": 0.0}, None, Verdict.HOLDS),
    ]
    if failing:
        name = "tiny_a_name_that_is_longer_than_any_telephone_is_wide_idblock_tiedB" * 2
        rows += [
            Row(name, "bundle", "c=3", {"intent": 0.3}, 0.1, Verdict.NOT_THE_GRADIENT, (HOSTILE,)),
            Row("tinyNetTied", "capstone", HOSTILE, {}, None, Verdict.FAILS, ("one", "two")),
        ]
    zeros = (Zero("i0.b₁", "a constant per channel at i0.n1", 1e-17),)
    further = (Row("at the kink n1 = 0", "hypothesis", "Id", {}, 0.1, Verdict.HOLDS, ("0 and 1",)),)
    return Ledger("Tiny", tuple(rows), "channels n → n/4", zeros, 1.5, (0,), ("x",), further)


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    chapters = {
        "right": (chapter(TINY, ledger(failing=False)),),
        "failing": (chapter(TINY, ledger(failing=True)),),
        "broken": (chapter(broken()),),
        "long": (chapter(long_names()),),
        "several": (chapter(TINY, ledger(failing=False)), chapter(broken())),
    }
    return {
        name: page.render(page.Page("check", f"{name} {HOSTILE}", found))
        for name, found in chapters.items()
    }


@pytest.fixture(scope="module")
def light(browser: str, pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return opened(browser, pages, (NARROW, WIDE), tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def dark(browser: str, pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Any:
    return opened(browser, pages, (WIDE,), tmp_path_factory.mktemp("dark"), dark=True)


# -- what a browser makes of them --------------------------------------------------------------


def test_no_page_is_wider_than_its_window(light: Any) -> None:
    assert len(light) == 10
    for at, found in light.items():
        assert found["overflow"] == 0, at
        assert found["spilled"] == [], at


def test_nothing_is_loaded_and_nothing_runs(light: Any, pages: dict[str, str]) -> None:
    for at, found in light.items():
        assert found["resources"] == [], at
        assert found["scripts"] == 0, at
    for content in pages.values():
        links = re.findall(r'(?:href|src|xlink:href)="([^"]*)"', content)
        assert all(link.startswith("#") for link in links)
        assert not re.search(r"url\(|@import", content)
        assert "default-src 'none'" in content


def test_drawings_are_laid_out_clearly(light: Any) -> None:
    for (name, width), found in light.items():
        at = f"{name} at {width}"
        assert found["overlaps"] == [], at
        assert found["outside"] == [], at
        assert found["crossed"] == [], at
        assert len(found["lines"]) > 20, at


def test_drawings_by_themselves(browser: str, tmp_path: Path) -> None:
    drawings: dict[str, str] = {}
    for name, content in (("broken", broken()), ("long", long_names())):
        shown = pictures(sections(read_net(Source("x.net", content))))
        drawings |= {f"{name} {p.name}": f"<!doctype html>{svg(p)}" for p in shown}
    for at, found in opened(browser, drawings, (WIDE,), tmp_path).items():
        assert found["overlaps"] == [], at
        assert found["outside"] == [], at
        assert found["crossed"] == [], at
        assert [c for c in found["contrast"] if c[0] < 4.5] == [], at
        assert "saved activation" in found["text"], at


def test_every_text_stands_out_from_what_is_behind_it(light: Any, dark: Any) -> None:
    shades = set()
    for found in (light, dark):
        for at, one in found.items():
            assert len(one["contrast"]) > 50
            low = [c for c in one["contrast"] if c[0] < 4.5]
            assert low == [], at
        shades.add(found["right", WIDE]["contrast"][0][0])
    # The dark page is another page.
    assert len(shades) == 2


def test_failing_rows_stand_first_and_say_so(light: Any) -> None:
    for width in (NARROW, WIDE):
        rows = light["failing", width]["marks"][:4]
        assert [bad for bad, _ in rows] == [True, True, False, False]
        assert "✗ not the gradient" in rows[0][1]
        assert "✗ fails" in rows[1][1]
        assert all("✓ holds" in words for _, words in rows[2:])
        text = light["failing", width]["text"]
        assert "2 of 4 do not hold" in text


def test_what_is_marked_is_marked_without_colour(light: Any) -> None:
    for name, bad in (("right", False), ("broken", True)):
        lines = light[name, WIDE]["lines"]
        assert any(is_bad for is_bad, _, _ in lines) == bad
        for is_bad, saved, dash in lines:
            assert (dash != "none") == (is_bad or saved)
        assert {dash for is_bad, _, dash in lines if is_bad}.isdisjoint(
            {dash for is_bad, saved, dash in lines if saved and not is_bad}
        )
    text = light["broken", NARROW]["text"]
    for words in (
        "✗ the conventions differ from the forward",
        "nets/x.net:58:5",
        "✗ %dr1 saves a; the forward makes it n1",
        "✗ should save n1",
        "✗ should add %dc1 and %da",
        "✗ should be convStridedBackBatched",
        "✗ lacks gapBackBatched",
    ):
        assert words in text, words
    assert "✗" not in light["right", WIDE]["text"].replace(f"right {HOSTILE}", "")


def test_hostile_names_are_only_text(light: Any) -> None:
    assert light["failing", WIDE]["text"].count(HOSTILE) == 3  # title, sizes, note


def test_the_measures_see_what_they_look_for(
    browser: str, pages: dict[str, str], tmp_path: Path
) -> None:
    """Each measure, on a page with what it must find."""
    right = pages["right"]

    def changed(old: str, new: str) -> str:
        assert old in right
        return right.replace(old, new, 1)

    faults = {
        "spilled": changed("<main>", '<main><div style="width:900px">wide</div>'),
        "contrast": changed("--soft: #5a6370", "--soft: #aaaaaa"),
        "overlaps": changed("font-size: 13.5px", "font-size: 40px"),
        "outside": changed("font-size: 11.5px; }", "font-size: 19px; }"),
        "crossed": re.sub(
            r'x="([\d.]+)"( y="[\d.]+">as at)', lambda m: f'x="{float(m[1]) - 20}"{m[2]}', right
        ),
        "resources": changed("<main>", '<main><img src="x.png">'),
        "scripts": changed("<main>", "<main><script>document.title = 1</script>"),
    }
    measured = opened(browser, faults, (NARROW,), tmp_path)
    for name in faults:
        found = measured[name, NARROW]
        seen = [c for c in found[name] if c[0] < 4.5] if name == "contrast" else found[name]
        assert seen, name
    assert measured["spilled", NARROW]["overflow"] > 500
    # Whatever got into a page, its policy keeps it from running.
    assert measured["scripts", NARROW]["title"].startswith("✓ check: right")


# -- files and commands ------------------------------------------------------------------------


def test_pages_are_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "page.html"
    empty = page.Page("check", "\x00\udcff", ())
    page.write(file, empty)
    before = file.read_text("utf-8")
    assert "\ufffd\ufffd" in before
    monkeypatch.setattr("os.replace", lambda a, b: (_ for _ in ()).throw(OSError(28, "No space")))
    with pytest.raises(ObligationsError, match="cannot be written"):
        page.write(file, page.Page("check", "another", ()))
    assert file.read_text("utf-8") == before
    assert [f.name for f in tmp_path.iterdir()] == ["page.html"]


def test_check_and_diff_write_pages(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    net = tmp_path / "tiny.net"
    net.write_text(TINY, "utf-8")
    wrong = tmp_path / "wrong.net"
    wrong.write_text(TINY.replace("W1,b1 ← %dn1   g1,bt1", "W1,b1 ← %dr1   g1,bt1", 1), "utf-8")
    assert run(["generate", str(net), "--unchecked", "--no-lean", "--out", str(tmp_path)]) == 0
    lean = tmp_path / "TinyStepTieB.lean"
    lean.write_text(lean.read_text("utf-8").replace("c2 := ", "c2  :=  "), "utf-8")

    checked = tmp_path / "check.html"
    assert (
        run(["check", str(net), str(wrong), "--only", "tinyIdTiedB", "--html", str(checked)]) == 1
    )
    content = html.unescape(checked.read_text("utf-8"))
    assert content.startswith("<!doctype html>")
    assert "tinyIdTiedB" in content
    assert "✗ should read %dn1" in content
    assert f"{wrong}:48:13" in content
    # Two descriptions of one name are kept apart, and each has its own findings.
    right, _, differs = content.partition(f"<h2>Tiny, {wrong}</h2>")
    assert f"<h2>Tiny, {net}</h2>" in right
    assert "1 of 1 hold;" in right
    assert "nothing was evaluated" in differs
    assert "tinyIdTiedB" not in differs

    compared = tmp_path / "diff.html"
    assert run(["diff", str(net), str(lean), "--html", str(compared)]) == 0
    content = compared.read_text("utf-8")
    assert content.count("✓ same") >= 10
    assert 'data-cotangent="%dx"' in content
    assert run(["diff", str(wrong), str(lean), "--html", str(compared)]) == 1
    assert "✗ should read %dn1" in compared.read_text("utf-8")

    assert run(["check", str(net), "--html", str(tmp_path / "no" / "x.html")]) == 2
    assert "Traceback" not in capsys.readouterr().err


MARKED = r'<code>(\w+)</code></th><td [^>]*><span class="mark[^"]*">(.*?)</span>'
"""A row's name and its verdict."""


def test_the_page_of_a_lean_file(tmp_path: Path) -> None:
    """What is wrong stands first, at its place; the rest has its notes under it."""
    net = tmp_path / "tiny.net"
    net.write_text(TINY, "utf-8")
    assert run(["generate", str(net), "--unchecked", "--no-lean", "--out", str(tmp_path)]) == 0
    lean = tmp_path / "TinyStepTieB.lean"
    lines = lean.read_text("utf-8").splitlines()
    lean.write_text(
        "\n".join(
            [
                *lines,
                "theorem wrong (n : Nat) : n = n + 1 := by sorry",
                "theorem unread (n : Nat) : nowhere n = n := by rfl",
                "structure Nothing where",
            ]
        ),
        "utf-8",
    )
    page_file, data = tmp_path / "check.html", tmp_path / "check.json"
    command = ["check", str(lean), "--net", str(net), "--html", str(page_file)]
    only = [x for n in ("tinyIdCotA", "wrong", "unread", "Nothing") for x in ("--only", n)]
    assert run([*command, *only, "--json", str(data)]) == 1
    content = html.unescape(page_file.read_text("utf-8"))
    at = len(lines)
    findings = re.findall(r'<div class="place">(.*?)</div>\n<div>.*?✗</span> (.*?)</div>', content)
    assert findings == [
        (f"{lean}:{at + 1}:9", "wrong: fails"),
        (f"{lean}:{at + 2}:28", "unread: unknown name 'nowhere'"),
    ]
    assert "at n=2: 2 against 3" in content
    heads = re.findall(r'<th role="columnheader" scope="col"[^>]*>(.*?)</th>', content)
    assert heads[:3] == ["name", "verdict", "line"]
    shown = re.findall(
        r'<code>(\w+)</code></th><td [^>]*><span class="mark[^"]*">(.*?)</span>', content
    )
    assert shown == [
        ("wrong", "✗ fails"),
        ("unread", "✗ not evaluable"),
        ("tinyIdCotA", "✓ holds"),
        ("Nothing", "no statement"),
    ]
    assert "Statement: the two sides of the statement." in content
    assert 'data-cotangent="%dx"' in content
    (found,) = json.loads(data.read_text("utf-8"))
    assert [(r["name"], r["line"]) for r in found["rows"][1:3]] == [
        ("wrong", at + 1),
        ("unread", at + 2),
    ]

    # What is allowed not to be known is no finding, and says why in its row.
    assert run([*command, *only[:2], *only[4:], "--allow-unknown"]) == 0
    content = html.unescape(page_file.read_text("utf-8"))
    assert 'class="findings"' not in content
    assert "unknown name 'nowhere'" in content


def test_the_page_of_a_comparison_shows_the_pieces(tmp_path: Path) -> None:
    left, right = tmp_path / "A.lean", tmp_path / "B.lean"
    left.write_text(
        "theorem t (a b : Nat) : a + b = b + a := by omega\ndef d : Nat := 1\n", "utf-8"
    )
    right.write_text("theorem t (a b : Nat) : a + b = b + b := by omega\n", "utf-8")
    file = tmp_path / "diff.html"
    assert run(["diff", str(left), str(right), "--html", str(file)]) == 1
    content = html.unescape(file.read_text("utf-8"))
    pieces = re.search(r"<pre tabindex=\"0\">(.*?)</pre>", content, re.DOTALL)
    assert pieces is not None
    assert pieces[1].splitlines() == ["differs:", "  A  1:37     a", "  B  1:37     b"]
    shown = re.findall(
        r'<code>(\w+)</code></th><td [^>]*><span class="mark[^"]*">(.*?)</span>', content
    )
    assert shown == [("t", "✗ statement differs"), ("d", "✗ only in A")]
    assert 'data-label="A">2:5</td>' in content
