"""Data and partitions as whole runs meet them, and ``dualfed data describe``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.cli_data import data_app
from dualfed.runs.config import parse
from dualfed.runs.draw_holdings import draw_holdings
from dualfed.runs.holdings import holdings
from dualfed.runs.prepare import Given, prepare
from dualfed.runs.simulate import resume, simulate
from typer.testing import CliRunner

SIZES = {"Bonn": 40, "Kiel": 80, "Ulm [north]": 160}


@pytest.fixture
def visits(tmp_path: Path) -> Path:
    """280 records of three hospitals; label 1 is likelier where age is high."""
    rng = np.random.default_rng(0)
    age = rng.uniform(0, 100, 280)
    frame = pd.DataFrame({"age": age, "sick": (age + rng.normal(0, 20, 280) > 50).astype(int)})
    frame["site"] = np.repeat(list(SIZES), list(SIZES.values()))
    path = tmp_path / "visits.csv"
    frame.to_csv(path, index=False)
    return path


def tables(path: Path, **changes: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "engine": "inline",
        "data": {
            "name": "csv",
            "path": str(path),
            "label": "sick",
            "label_classes": [0, 1],
            "client": "site",
            "ranges": {"age": [0, 100]},
            "centred": True,
            "test_fraction": 0.25,
        },
        "partition": {"scheme": "column"},
        "problem": {"kind": "logistic"},
        "method": {"name": "fedspd-dp", "rounds": 6, "local_steps": 3, "batch_size": 5, "rho": 0.5, "gamma": 0.5},
        "privacy": {"mode": "noise-multiplier", "noise_multiplier": 1.0},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        made[section][key] = value
    return made


def test_sampling_rates_come_from_the_records_each_client_trains_on(visits: Path, tmp_path: Path) -> None:
    prepared = prepare(parse(tables(visits)), tmp_path, Given())
    assert prepared.sizes.tolist() == [30, 60, 120]
    events, rates = prepared.job.plan.events, []
    for client in range(3):
        (number,) = prepared.job.plan.events_of(1, np.array([client]))
        rates.append(vars(events[number])["rate"])
    for rate, records in zip(rates, (30, 60, 120)):
        exact = 3 * 5 / records  # Q·b/m
        assert exact <= rate <= 1.05 * exact  # put on a grid, never below
    result = simulate(tables(visits), keep=False)
    assert (np.diff(result.clients["epsilon"]) < 0).all()
    assert result.clients["records"].tolist() == [30, 60, 120]
    assert result.summary["accuracy"] > 0.7


def test_more_batches_than_the_smallest_client_has_records(visits: Path) -> None:
    with pytest.raises(InvalidValue, match="30"):
        simulate(tables(visits, method__batch_size=11), keep=False)


def test_the_report_says_private_where_it_is(visits: Path) -> None:
    private = tables(visits, data__ranges={}, data__numeric=["age"], data__statistics="private", data__centred=False)
    assert "private statistics" in simulate(private, keep=False).summary["scaling"]
    assert "private" not in simulate(tables(visits), keep=False).summary["scaling"]


def test_a_file_that_changed_is_noticed_on_resuming(visits: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    simulate(tables(visits), out=folder)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"ending": "stopped"}))
    text = visits.read_text().splitlines()
    visits.write_text("\n".join([text[0], *text[2:], text[1]]) + "\n")
    with pytest.raises(InvalidValue, match="not those of the run's start"):
        resume(folder)
    visits.unlink()
    with pytest.raises(InvalidValue, match="not a file that exists"):
        resume(folder)


def test_the_resolved_configuration_runs_again(visits: Path, tmp_path: Path) -> None:
    import tomllib

    first = simulate(tables(visits), out=tmp_path / "one")
    again = simulate(tomllib.loads((tmp_path / "one" / "config.toml").read_text()), out=tmp_path / "two")
    np.testing.assert_array_equal(first.model, again.model)


def test_one_record_and_clients_of_one_record(tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    path.write_text("age,sick,site\n3,0,a\n")
    with pytest.raises(InvalidValue, match="nothing to learn"):
        holdings(parse(tables(path)))
    path.write_text("age,sick,site\n" + "".join(f"{age},{age % 2},s{age}\n" for age in range(9)))
    with pytest.raises(InvalidValue, match="bring a test set"):
        holdings(parse(tables(path)))
    path.write_text("age,sick,site\n" + "".join(f"{age},{age % 2},s{min(age, 3)}\n" for age in range(9)))
    held = holdings(parse(tables(path)))
    assert [len(rows) for rows in held.members][:3] == [1, 1, 1]


def test_holdings_are_what_a_run_uses(visits: Path, tmp_path: Path) -> None:
    config = parse(tables(visits))
    held = holdings(config)
    prepared = prepare(config, tmp_path, Given())
    assert held.frame["records"].tolist() == prepared.sizes.tolist()
    assert held.names == list(SIZES)
    np.testing.assert_allclose(held.proportions.sum(axis=1), 1)
    np.testing.assert_allclose(held.frame["largest_share"], held.proportions.max(axis=1))
    assert (held.frame["distance"].between(0, 1)).all()
    assert held.left_out == 0


def test_identical_and_disjoint_clients_have_distance_nought_and_most() -> None:
    base = {"data": {"name": "synthetic", "records": 1000, "classes": 4, "features": 3}}
    pure = {"scheme": "pathological", "clients": 4, "classes_per_client": 1}
    same = holdings(parse({**base, "partition": {"clients": 1}}))
    apart = holdings(parse({**base, "partition": pure}))
    assert same.frame["distance"].tolist() == [0]
    np.testing.assert_allclose(apart.frame["distance"], 0.75, atol=0.02)


def test_describe_prints_and_draws(visits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tomlkit

    monkeypatch.setenv("COLUMNS", "140")
    config = tmp_path / "mine.toml"
    config.write_text(tomlkit.dumps(tables(visits)))
    result = CliRunner().invoke(data_app, ["describe", str(config), "--out", str(tmp_path / "seen")])
    assert result.exit_code == 0, result.output
    for words in (
        "210 training and 70 test records",
        "Ulm [north]",
        "120",
        "from 0..100",
        "public",
        "label skew",
        "% 1",
    ):
        assert words in result.output
    assert sorted(path.name for path in (tmp_path / "seen").iterdir()) == ["clients.png", "clients.svg"]
    changes = ["--set", "partition.min_size=50", "--set", "partition.drop_small=true", "--out", str(tmp_path / "seen")]
    result = CliRunner().invoke(data_app, ["describe", str(config), *changes])
    assert "1 small clients with 30 training records left out" in result.output
    private = ["--set", "data.ranges={}", "--set", 'data.numeric=["age"]', "--set", "data.statistics=private"]
    result = CliRunner().invoke(data_app, ["describe", str(config), *private, "--out", str(tmp_path / "seen")])
    assert "no ε accounts for that" in result.output
    assert isinstance(
        CliRunner().invoke(data_app, ["describe", str(config), "--set", "data.path=x"]).exception, InvalidValue
    )


@pytest.mark.parametrize("clients", [1, 12, 200, 450])
def test_pictures_of_few_and_many_clients(clients: int, tmp_path: Path) -> None:
    data = {"name": "synthetic", "records": 3000, "classes": 3, "features": 2}
    held = holdings(parse({"data": data, "partition": {"scheme": "dirichlet", "clients": clients, "alpha": 0.3}}))
    png, svg = draw_holdings(held, tmp_path / "clients")
    assert png.stat().st_size > 5000
    first = svg.read_bytes()
    assert draw_holdings(held, tmp_path / "clients")[1].read_bytes() == first
    result = CliRunner().invoke(data_app, ["describe", "quickstart", "--out", str(tmp_path / "file.txt")])
    assert result.exit_code == 0


def test_pictures_of_real_targets_and_folders_that_cannot_be_made(tmp_path: Path) -> None:
    np.savez(tmp_path / "r.npz", x=np.random.default_rng(0).normal(size=(50, 3)), y=np.linspace(0, 1, 50))
    values = {
        "data": {"name": "npz", "path": str(tmp_path / "r.npz")},
        "partition": {"scheme": "quantity", "clients": 4},
    }
    held = holdings(parse(values))
    assert held.proportions.shape == (4, 0)
    assert held.frame["mean_target"].between(0, 1).all()
    draw_holdings(held, tmp_path / "clients")
    with pytest.raises(InvalidValue, match="cannot be written"):
        draw_holdings(held, tmp_path / "r.npz" / "clients")
