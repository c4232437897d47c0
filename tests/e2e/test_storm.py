"""A small fault storm: everything that can be killed is, at random moments; see benchmarks/storm.py for a large one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

STORM = Path(__file__).parents[2] / "benchmarks" / "storm.py"


@pytest.mark.timeout(600)
def test_every_run_completes_and_nothing_is_released_without_a_charge(tmp_path):
    told = tmp_path / "storm.json"
    options = ["--runs", "1", "--rounds", "250", "--kills", "3", "--seed", "3", "--json", str(told)]
    storm = subprocess.Popen(
        [sys.executable, str(STORM), *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said, _ = storm.communicate(timeout=500)
    except subprocess.TimeoutExpired:
        storm.terminate()  # it ends its cluster
        said, _ = storm.communicate(timeout=60)
    assert storm.returncode == 0, said
    result = json.loads(told.read_text())
    assert result["completed"] == result["runs"] == 1
    assert sum(result["kills"].values()) >= 1
    assert result["uncharged"] == 0
    assert result["twice"] == 0
    assert result["orphans"] == 0
    assert all(accuracy > 0.6 for accuracy in result["accuracy"])
