"""Every method over a graph through the command line: its template is complete and valid, and it runs on digits."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from dualfed.algorithms.registry import make_method, method_class, method_table
from dualfed.runs import cli
from dualfed.runs.template import template, write_template

METHODS = (
    "dsgd",
    "gradient-tracking",
    "extra",
    "dp-dsgd",
    "dp-gt",
    "lt-admm",
    "dvp-admm",
    "pvp-admm",
    "penalty-admm",
    "recycled-admm",
)


@pytest.mark.parametrize("name", METHODS)
def test_the_template_has_every_field_with_its_default(name):
    text = template(name)
    given = tomllib.loads(text)["method"]
    left_out = re.sub(r"^# ([a-z_0-9]+ = )", r"\1", text, flags=re.MULTILINE)
    everything = tomllib.loads(left_out)["method"]
    needs = {"clip": 1.0} if "clip" in everything else {}
    assert make_method(given) == make_method({"name": name, **needs})
    assert set(method_table(make_method(everything))) == set(everything)
    assert make_method(everything).name == name
    assert max(len(line) for line in text.splitlines()) <= 120


@pytest.mark.parametrize("name", METHODS)
def test_it_runs_through_the_command(name, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    write_template(tmp_path / "run.toml", name)
    quick = ["--set=engine=inline", "--set=method.rounds=4", "--set=partition.clients=8", "--set=evaluate_every=2"]
    quick += ["--set=method.local_steps=5"] if name in ("dp-dsgd", "dp-gt", "lt-admm") else []
    monkeypatch.setattr(sys, "argv", ["dualfed", "run", "run.toml", *quick])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    shown = " ".join(capfd.readouterr().out.split())
    assert "completed" in shown
    assert ("guaranteed" in shown) == method_class(name).private
    assert ("∞" in shown) == (not method_class(name).private)


def test_all_are_listed_with_what_they_are():
    command = Path(sys.executable).with_name("dualfed")
    told = subprocess.run([command, "list"], capture_output=True, text=True, env={"COLUMNS": "200"}, timeout=120)
    assert told.returncode == 0, told.stderr
    rows = {line.split("│")[1].strip(): line for line in told.stdout.splitlines() if line.startswith("│")}
    for name in METHODS:
        assert "graph" in rows[name]
        assert ("guaranteed" if method_class(name).private else "∞ (no noise)") in rows[name]
