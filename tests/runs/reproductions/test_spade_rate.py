"""``dualfed reproduce spade-rate``: its runs, its fit, and what it says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from dualfed.errors import InvalidValue
from dualfed.runs.reproductions import reproduction, spade_rate
from dualfed.runs.study import carry_out


def test_a_slope_is_that_of_a_power():
    x = np.array([10, 100, 1000])
    assert spade_rate.slope(x, 3 * x**-0.4) == pytest.approx(-0.4)


def test_short_runs_give_the_table_and_both_slopes(tmp_path):
    study = carry_out(spade_rate.rate_runs([0, 1], [64, 512]), tmp_path)
    table = spade_rate.rate_table(study)
    assert table["local_steps"].tolist() == [4, 8] * 2
    assert table["rounds"].tolist() == [16, 64] * 2
    np.testing.assert_allclose(table["residual"], table["stationarity"] + table["consensus"])
    conclusion = reproduction("spade-rate").conclude(study)
    pd.testing.assert_frame_equal(conclusion.table, table)
    assert conclusion.claims[1].holds
    assert "their slope is 0.667" in conclusion.paragraph()
    assert "2 seeds" in conclusion.paragraph()


@pytest.mark.parametrize(
    ("residual", "rounds", "holds"), [(0.5, 47, [True, True]), (0.6, 47, [False, True]), (0.5, 50, [True, False])]
)
def test_the_verdict_follows_the_margins(residual, rounds, holds):
    table = pd.DataFrame({"budget": [100, 1000], "seed": [0, 0], "residual": [1.0, residual], "rounds": [10, rounds]})
    claims = spade_rate.rate_claims(table)
    assert [claim.holds for claim in claims] == holds
    assert ("does not hold here" in claims[0].sentence()) is not holds[0]


def test_what_it_refuses():
    with pytest.raises(InvalidValue, match="two or more different"):
        spade_rate.rate_runs([0], [100])
