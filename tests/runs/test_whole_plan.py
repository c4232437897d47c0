"""What a stopped run says of its whole plan, against what the run comes to when it goes on to its end."""

from __future__ import annotations

import math

import pytest
from dualfed.runs.simulate import resume, simulate
from dualfed.runs.summary import ending_sentences

CONFIG = {
    "engine": "inline",
    "checkpoint_every": 4,
    "data": {"name": "synthetic", "records": 200, "features": 4, "classes": 3},
    "partition": {"clients": 5},
    "method": {"name": "fedspd-dp", "rounds": 10, "participants": 3, "local_steps": 2, "batch_size": 5},
    "privacy": {"mode": "noise-multiplier", "noise_multiplier": 2.0},
}
TIMED = {"compute": "pareto", "shape": 1.5}
ASYNC = {"policy": {"kind": "async", "buffer": 2}, "time": TIMED}
CASES = {
    "wait": {},
    "cap": {"policy": {"cap": 3}},
    "budget": {"privacy": {**CONFIG["privacy"], "budget": 3.0}},
    "over-select": {"policy": {"kind": "over-select", "extra": 1}, "time": TIMED},
    "async": ASYNC,
    "async with a cap": {**ASYNC, "policy": {**ASYNC["policy"], "cap": 8}},
}


class Killed(BaseException):
    """What a test raises in place of a kill."""


def kill(event):
    if event["kind"] == "round" and event["round"] == 7:
        raise Killed


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("killed", [False, True])
def test_no_less_than_the_run_comes_to_at_its_end(case, killed, stop_after, tmp_path):
    config, folder = {**CONFIG, **CASES[case]}, tmp_path / "run"
    if killed:
        with pytest.raises(Killed):
            simulate(config, out=folder, listen=kill)
        stopped = resume(folder, listen=stop_after(8))
    else:
        stopped = simulate(config, out=folder, listen=stop_after(5))
    assert stopped.ending == "stopped"
    planned = stopped.summary["epsilon_planned"]
    whole = resume(folder).epsilon
    assert stopped.epsilon <= whole <= planned < 2 * whole
    if case in ("wait", "cap", "over-select"):
        assert planned == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize(("limit", "planned"), [({}, math.inf), ({"budget": 6.0}, 6.0)])
def test_where_clients_begin_anew_as_often_as_they_drop_out_only_a_limit_bounds_it(limit, planned, stop_after):
    config = {
        **CONFIG,
        "policy": {"kind": "async", "buffer": 3, "staleness": 0},
        "time": {**TIMED, "dropout": 0.5},
        "privacy": {**CONFIG["privacy"], **limit},
    }
    stopped = simulate(config, keep=False, listen=stop_after(5))
    assert stopped.summary["epsilon_planned"] == planned
    (said,) = (said for said in ending_sentences(stopped) if "the stop did not depend" in said)
    assert ("policy.cap or privacy.budget would bound it" in said) is math.isinf(planned)
    assert "no noise" not in said
