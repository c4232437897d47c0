"""A few of the kills of ``benchmarks/crash.py``: what left a client is in the journal, whatever was killed and when."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.slow]

PLACE = Path(__file__).parents[2] / "benchmarks" / "crash.py"


@pytest.fixture(scope="module")
def crash():
    spec = importlib.util.spec_from_file_location("crash_campaign", PLACE)
    module = sys.modules["crash_campaign"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("target", "kills"), [("ledger", 2), ("host", 2), ("coordinator", 1), ("driver", 1)])
def test_no_release_is_uncharged_after_kills(crash, target, kills, tmp_path):
    figures = crash.campaign(target, kills, seed=3, folder=tmp_path / "campaign")
    assert figures.kills == kills
    assert figures.seen > 3 * crash.PARTICIPANTS, "the witness saw the run go on"
    assert figures.uncharged == 0
    assert figures.repeated == 0
    assert figures.falls == 0
    assert figures.unreleased <= figures.allowed
