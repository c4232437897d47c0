"""Pages: everything escaped, nothing loaded, well formed."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from dualfed import report, simulate
from dualfed.errors import InvalidValue
from dualfed.runs.report.page import Code, Page, Section, Text, facts, html, table

_NASTY = "<script>alert('x')</script> & \"q\""
_EMPTY = {"meta", "img", "br", "hr", "link", "input"}


class _Checker(HTMLParser):
    """Notes tags that do not match, and everything that a browser would load."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in _EMPTY:
            self.open.append(tag)
        if tag == "script":
            self.wrong.append("script")
        for name, value in attrs:
            if name in ("src", "href") and not value.startswith(("data:image/", "#")):
                self.loads.append(value)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def checked(text: str) -> _Checker:
    checker = _Checker()
    checker.feed(text)
    checker.close()
    return checker


def assert_stands_alone(text: str) -> None:
    """Well formed, without scripts, and nothing to load from anywhere."""
    checker = checked(text)
    assert checker.wrong == []
    assert checker.open == []
    assert checker.loads == []
    assert not re.search(r"@import|url\(", text)


def test_everything_is_escaped():
    frame = pd.DataFrame({_NASTY: [_NASTY, 1.5]})
    blocks = [Text(_NASTY, "warning"), table(frame, _NASTY), facts({_NASTY: _NASTY}), Code(_NASTY, _NASTY)]
    text = html(Page(_NASTY, _NASTY, [Section(_NASTY, blocks)]))
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 9
    assert_stands_alone(text)


def _run(folder, **changes):
    tables = {
        "name": "told",
        "engine": "inline",
        "evaluate_every": 1,
        "data": {"name": "synthetic", "records": 200, "features": 4, "classes": 2},
        "partition": {"clients": 3},
        "problem": {"kind": "logistic"},
        "method": {"name": "fedspd-dp", "rounds": 3, "local_steps": 1, "batch_size": 10, **changes.pop("method", {})},
        "privacy": {"mode": "total", "epsilon": 4.0},
        **changes,
    }
    return simulate(tables, out=folder)


def test_a_guaranteed_run_says_for_what_and_by_which_account(tmp_path):
    result = _run(tmp_path / "run")
    text = report(tmp_path / "run").read_text(encoding="utf-8")
    assert_stands_alone(text)
    assert re.search(r"Guaranteed \(\d\.\d\d, 1e-05\)-DP for one record of a client, replace-one, by the ", text)
    assert "claimed" not in text.lower().replace("none were claimed", "")
    assert f"{100 * result.accuracy:.1f}" in text
    assert text.count("data:image/svg+xml;base64,") == 4
    assert "Computed from private data for whoever simulates" in text
    assert "differ in one record, replaced" in text
    assert "dp-accounting, version" in text
    assert "epsilon = 4.0" in text


def test_a_claimed_run_says_why_and_never_its_number_alone(tmp_path):
    _run(tmp_path / "run", method={"state": "paper"})
    text = report(tmp_path / "run").read_text(encoding="utf-8")
    assert "Claimed, not guaranteed:" in text
    assert "Claimed, because:" in text
    assert "Guaranteed (" not in text
    cells = re.findall(r"<td[^>]*>(\d+\.\d\d(?: \([a-z]+\))?)</td>", text)
    assert any(each.endswith("(claimed)") for each in cells)
    assert "(guaranteed)" not in text


def test_a_run_without_noise_protects_nobody(tmp_path):
    _run(tmp_path / "run", privacy={"mode": "none"})
    text = report(tmp_path / "run").read_text(encoding="utf-8")
    assert "the releases of this run protect nobody" in text
    assert_stands_alone(text)


def test_refused_clients_are_told(tmp_path):
    privacy = {"mode": "noise-multiplier", "noise_multiplier": 1.0, "budget": 2.0}
    _run(tmp_path / "run", privacy=privacy, partition={"clients": 3}, method={"rounds": 60})
    text = report(tmp_path / "run").read_text(encoding="utf-8")
    assert "The ledger refused 3 clients, whose budget was spent: 0, 1, 2." in text
    assert "ended because nobody could take part any more" in text


def test_no_run_no_page(tmp_path):
    with pytest.raises(InvalidValue, match="holds no run"):
        report(tmp_path)
