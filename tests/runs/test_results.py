"""A run's folder, read: whole, and with a file that is damaged or lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from dualfed import InvalidValue, simulate
from dualfed.runs.report import report
from dualfed.runs.results import load_result


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tables = {
        "engine": "inline",
        "record_states": True,
        "partition": {"clients": 3},
        "method": {"rounds": 2, "local_steps": 1, "batch_size": 10},
        "privacy": {"mode": "none"},
    }
    folder = tmp_path_factory.mktemp("results") / "run"
    simulate(tables, out=folder)
    return folder


DAMAGED = [
    *(f"{name}.parquet" for name in ("metrics", "diagnostics", "timing", "events", "clients")),
    *("summary.json", "config.toml", "model.safetensors", "states.npz"),
]


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_named(run: Path, tmp_path: Path, name: str) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    for content in (b"{ not what it was", (run / name).read_bytes()[:30]):
        (copy / name).write_bytes(content)
        with pytest.raises(InvalidValue, match=f"{name} is missing or damaged .*; restore it from a copy") as caught:
            load_result(copy)
        assert "\n" not in str(caught.value)


def test_a_run_that_has_not_ended_is_read_as_it_is(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    for name in ("summary.json", "clients.parquet", "model.safetensors", "states.npz"):
        (copy / name).unlink()
    assert load_result(copy).ending == "unfinished"


def test_a_report_needs_the_clients(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "clients.parquet").unlink()
    with pytest.raises(InvalidValue, match=r"clients\.parquet is missing"):
        report(copy)
