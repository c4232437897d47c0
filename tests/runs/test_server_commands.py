"""Every method with a server from the command line: the file that ``dualfed init`` writes, a run of it, and the list."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from dualfed.algorithms.registry import make_method, method_class, method_names
from dualfed.errors import InvalidValue
from dualfed.runs import cli
from dualfed.runs.results import load_result
from dualfed.runs.template import template

OURS = [name for name in method_names() if method_class(name).family == "server" and name != "fedspd-dp"]


def command(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["dualfed", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code or 0


@pytest.mark.parametrize("name", OURS)
def test_a_written_file_runs(name, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    assert command(monkeypatch, "init", "mine.toml", "--method", name) == 0
    few = ["--set=method.rounds=4", "--set=partition.clients=4", "--set=evaluate_every=2", "--engine=inline"]
    assert command(monkeypatch, "run", "mine.toml", *few, "--out", "one") == 0
    flat = " ".join(capfd.readouterr().out.replace("│", " ").split())
    chosen = method_class(name)
    if chosen.private:
        neighbours = "client" if name == "dp-fedavg" else "record"
        assert "guaranteed (8.00, 1e-05)-DP" in flat
        assert load_result(Path("one")).summary["unit"] == neighbours
    else:
        assert "ε = ∞ (no noise)" in flat
    accuracy = load_result(Path("one")).metrics["accuracy"]
    assert len(accuracy) == 3
    if name not in (
        "two-phase-dp-admm",
        "dp-fedavg",
        "async-dp-admm",
        "stochastic-dp-admm",
    ):  # whose noise hides all that 4 rounds learn
        assert accuracy.iloc[-1] > accuracy.iloc[0] + 0.1


@pytest.mark.parametrize("name", OURS)
def test_a_written_file_names_every_parameter_with_its_default(name):
    text = template(name)
    given = tomllib.loads(text)
    assert make_method(given["method"]) == method_class(name)()
    assert given["privacy"]["mode"] == ("total" if method_class(name).private else "none")
    section = text[text.index("[method]") : text.index("[privacy]")]
    for field in fields(method_class(name)):
        assert f"\n{field.name} = " in section or f"\n# {field.name} = " in section
    assert max(len(line) for line in text.splitlines()) <= 120


def test_the_installed_command_lists_and_runs_them(tmp_path):
    path = Path(sys.executable).with_name("dualfed")
    environment = {"COLUMNS": "200", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1", "HOME": str(tmp_path)}
    listed = subprocess.run([path, "list"], capture_output=True, text=True, check=True, env=environment).stdout
    rows = {name: next(line for line in listed.splitlines() if f" {name} " in line) for name in OURS}
    for name, row in rows.items():
        assert "server" in row
        assert ("guaranteed" if method_class(name).private else "∞ (no noise)") in row
        assert method_class(name).source[:12] in row
    few = ["--set=method.name=scaffold", "--set=method.rounds=3", "--set=privacy.mode=none", "--set=data.name=digits"]
    (tmp_path / "own.toml").write_text('engine = "inline"\n[method]\nname = "fedavg"\n')
    done = subprocess.run(
        [path, "run", "own.toml", *few], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr
    refused = subprocess.run(
        [path, "run", "own.toml"], capture_output=True, text=True, cwd=tmp_path, env=environment, check=False
    )
    assert refused.returncode == 2
    assert len(refused.stderr.strip().splitlines()) == 1
    assert refused.stderr.startswith("error: privacy.mode = 'total': fedavg is a reference without privacy")


@pytest.mark.parametrize(
    ("method", "field"),
    [
        ({"name": "dp-sgd", "eta": [1.0, 2.0]}, "method.eta"),
        ({"name": "dp-sgd", "clip": 0.0}, "method.clip"),
        ({"name": "dp-sgd", "batches": "epoch"}, "method.batches"),
        ({"name": "dp-fedavg", "unit": "house"}, "method.unit"),
        ({"name": "dp-admm", "rho": -1.0}, "method.rho"),
        ({"name": "dp-admm", "eta": {"value": 1.0, "shape": "cubic"}}, "method.eta"),
        ({"name": "async-dp-admm", "share": 0.0}, "method.share"),
        ({"name": "async-dp-admm", "staleness": 0}, "method.staleness"),
        ({"name": "fedprox", "mu": 3.0}, "method.mu"),
        ({"name": "scaffold", "eta_g": float("nan")}, "method.eta_g"),
        ({"name": "fedadmm", "local_steps": 0}, "method.local_steps"),
        ({"name": "consensus-admm", "tolerance": 0.0}, "method.tolerance"),
        ({"name": "consensus-admm", "solver": "magic"}, "method.solver"),
        ({"name": "two-phase-dp-admm", "rounds": 0}, "method.rounds"),
    ],
)
def test_parameters_are_checked(method, field):
    with pytest.raises(InvalidValue, match=field):
        make_method(method)
