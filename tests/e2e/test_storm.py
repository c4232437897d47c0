"""A small fault storm: everything that can be killed is, at random moments; see benchmarks/storm.py for a large one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STORM = Path(__file__).parents[2] / "benchmarks" / "storm.py"


def test_every_run_completes_and_nothing_is_released_without_a_charge(tmp_path):
    told = tmp_path / "storm.json"
    options = ["--runs", "2", "--rounds", "250", "--kills", "2", "--seed", "3", "--json", str(told)]
    done = subprocess.run([sys.executable, str(STORM), *options], capture_output=True, text=True, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(told.read_text())
    assert result["completed"] == result["runs"] == 2
    assert sum(result["kills"].values()) >= 2
    assert result["uncharged"] == 0
    assert result["twice"] == 0
    assert result["orphans"] == 0
    assert all(accuracy > 0.6 for accuracy in result["accuracy"])
