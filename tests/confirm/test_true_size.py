"""The unscaled capstone of a small net; the large ones are slow and have their own command."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from obligations.confirm.true_size import check_true_size
from obligations.description.reader import load
from obligations.lean import syntax as s
from obligations.statements.tie_file import derive

TINY = str(Path(__file__).resolve().parents[1] / "nets" / "tiny.net")


def test_the_capstone_holds_at_its_true_size() -> None:
    shares: list[float] = []
    ledger = check_true_size(derive(load(TINY, {})), progress=lambda share, _: shares.append(share))
    assert ledger.ok
    assert "30 tensors, 23 with a gradient" in ledger.rows[0].notes[0]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] == pytest.approx(1.0)


def test_a_wrong_node_is_found_by_halving() -> None:
    derived = derive(load(TINY, {}))
    out = []
    for o in derived.obligations:
        if o.kind == "capstone":
            # One block reads another prefix: its first weights are then off.
            type_ = s.substitute(o.declaration.type, {"tinyPre1": s.Ident("tinyPre0")})
            o = replace(o, declaration=replace(o.declaration, type=type_))
        out.append(o)
    ledger = check_true_size(replace(derived, obligations=tuple(out)))
    assert not ledger.ok
    assert any(note.startswith(("m0.", "i0.", "sW", "sγ")) for note in ledger.rows[0].notes[1:])


@pytest.mark.slow
@pytest.mark.parametrize(("net", "tensors"), [("resnet34", 146), ("mobilenetv2", 210)])
def test_a_real_net_holds_at_its_true_size(net: str, tensors: int) -> None:
    ledger = check_true_size(derive(load(net, {})))
    assert ledger.ok
    assert ledger.rows[0].notes[0].startswith(f"{tensors} tensors")
