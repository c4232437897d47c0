"""``dualfed reproduce spade-…``: plans, the choice of candidates, tables, claims, and the trends that runs show."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from dualfed.runs.reproductions import (
    reproduce,
    reproduction,
    spade_methods,
    spade_partitions,
    spade_setting,
    spade_tradeoff,
)
from dualfed.runs.study import Wanted, carry_out

TABLES = {"spade-table": "partition", "spade-epsilon": "epsilon_total", "spade-clients": "clients"}
TINY = ["method.local_steps=4", "method.rounds=2"]


def _changed(entry, method=(), **tables):
    given = entry.config.model_dump(mode="json", exclude_unset=True)
    return Wanted(entry.labels, {**given, "method": {**given["method"], **dict(method)}, **tables})


def _label(entry, **labels):
    return all(entry.labels[name] == value for name, value in labels.items())


@pytest.mark.parametrize("name", TABLES)
def test_methods_are_tuned_alike_and_ask_the_same(name):
    axis = TABLES[name]
    for scale in ("small", "full"):
        frame = pd.DataFrame([e.labels | {"config": e.config} for e in reproduction(name).plan(scale, [0, 1])])
        assert (frame.groupby([axis, "method"])["candidate"].nunique() == 2).all()
        assert (frame.groupby([axis, "method"]).size() == 6).all()
        assert frame[frame["held_out"]]["seed"].eq(0).all()
        for row in frame.itertuples():
            assert row.config.data.validation == (0.2 if row.held_out else None)
            assert row.config.data.seed == 0
            assert row.config.privacy.mode == "total"
        sees = {method: entry.sees for method, entry in spade_setting.entries(scale).items()}
        asked = {
            (c.method["rounds"], c.method["local_steps"], c.method["chunk"], c.method["clip"])
            for m, c in zip(frame["method"], frame["config"], strict=True)
            if sees[m] == "values"
        }
        assert len(asked) == 1


@pytest.mark.parametrize("name", [*TABLES, "spade-heterogeneity"])
def test_each_goes_from_its_plan_to_its_paragraph(name, tmp_path):
    few = [] if name == "spade-clients" else ["partition.clients=12"]
    whole = reproduction(name)
    axis = TABLES.get(name, "partition")
    # The first and the last cell are enough to go all the way.
    ends = {"spade-epsilon": (4.0, 32.0), "spade-clients": (30, 100)}.get(name)
    short = replace(
        whole, plan=lambda scale, seeds: [e for e in whole.plan(scale, seeds) if ends is None or e.labels[axis] in ends]
    )
    found = reproduce(short, tmp_path, settings=[*TINY, *few], seeds=1)
    assert len(found.study.rows) == len(found.study.wanted)
    assert {f"{name}.csv", f"{name}.png", f"{name}.txt", "report.html"} <= {path.name for path in found.files}
    table = found.conclusion.table
    assert (table["feature_map"] == "dct, 16").all()
    assert (table["epsilon_is"] == "guaranteed").all()
    text = found.conclusion.paragraph()
    assert "public feature map: dct, 16" in text
    assert "seeds: 1" in text
    if name in TABLES:
        assert len(table) == table[axis].nunique() * table["method"].nunique()
        assert "its cost is not in ε" in text


def test_the_candidate_is_chosen_on_held_out_records(tmp_path):
    wanted = [
        _changed(e, {"rounds": 1, "local_steps": 2}, partition={"clients": 4})
        for e in spade_methods.epsilon_runs("small", [0])
        if _label(e, method="dp-dsgd, values", epsilon_total=32.0)
    ]
    study = carry_out(wanted, tmp_path)
    study.rows["accuracy"] = np.where(
        study.rows["held_out"], [0.2, 0.9, 0.3, 0.1], [0.2, 0.9, 0.3, 0.1]
    )  # candidate 0: held out 0.2, test 0.9; candidate 1: held out 0.3, test 0.1
    (row,) = spade_setting.chosen_rows(study, "epsilon_total").to_dict("records")
    assert row["candidate"] == 1
    assert row["accuracy"] == 0.1


def _accuracies(values):
    return pd.DataFrame(
        [{"partition": p, "method": m, "accuracy": a} for p, row in values.items() for m, a in row.items()]
    )


def test_margins_are_to_the_best_of_those_with_the_same_information():
    table = _accuracies(
        {
            "iid": {
                "spade-dfl, baseline": 0.5,
                "dp-dsgd, values": 0.4,
                "dp-gt, values": 0.45,
                "lt-admm, gradients": 0.9,
            },
            "pathological": {
                "spade-dfl, baseline": 0.3,
                "dp-dsgd, values": 0.1,
                "dp-gt, values": 0.32,
                "lt-admm, gradients": 0.2,
            },
        }
    )
    by = spade_setting.margins(table, "partition", "spade-dfl, baseline")
    assert by.tolist() == pytest.approx([5.0, -2.0])
    claim = spade_methods.won(table, "partition", "spade-dfl, baseline", "values")
    assert claim.holds is False
    assert "1 of 2 cells won" in claim.measured
    assert spade_methods.won(table.query("partition == 'iid'"), "partition", "spade-dfl, baseline", "values").holds


@pytest.mark.parametrize(("last", "holds"), [(0.5, True), (0.2, False)])
def test_rising_follows_the_numbers(last, holds):
    table = pd.DataFrame({"N": [30, 50, 100], "method": "spade-dfl, paper", "accuracy": [0.3, 0.1, last]})
    assert spade_methods.rises(table, "N", "spade-dfl, paper", "N").holds is holds


def test_class_shares_are_those_of_the_partition(tmp_path):
    study = carry_out(
        [
            _changed(e, {"rounds": 1, "local_steps": 2})
            for e in spade_partitions.partition_runs("small", [0])
            if e.labels["noise"] == "ε = 32"
        ],
        tmp_path,
    )
    found = spade_partitions.held(study)
    for holding in found.values():
        assert len(holding.proportions) == 100
        np.testing.assert_allclose(holding.proportions.sum(axis=1), 1.0)
    distance = {name: holding.frame["distance"].mean() for name, holding in found.items()}
    assert distance["iid"] < distance["dirichlet 1.0"] < distance["dirichlet 0.1"]
    assert ((found["pathological"].proportions > 0).sum(axis=1) <= 2).all()


def test_the_trade_off_without_privacy(tmp_path):
    """Fifty times fewer scalars; the residual rises manyfold (here it is to exceed three times)."""
    wanted = [
        _changed(e, {"rounds": 600 // e.labels["tau"]})
        for e in spade_tradeoff.tradeoff_runs("small", [0])
        if e.labels["privacy"] == "none" and e.labels["tau"] in (5, 20, 100)
    ]
    table = spade_tradeoff.tradeoff_table(carry_out(wanted, tmp_path)).sort_values("tau")
    np.testing.assert_allclose(table["scalars_sent"] * table["tau"], table["scalars_sent"].iloc[0] * 5)
    assert table["residual"].iloc[-1] > 3 * table["residual"].iloc[0]


def test_the_trade_off_from_its_plan_to_its_paragraph(tmp_path):
    whole = reproduction("spade-tradeoff")
    short = replace(whole, plan=lambda scale, seeds: [_few_steps(e) for e in whole.plan(scale, seeds) if _extreme(e)])
    found = reproduce(short, tmp_path, seeds=1)
    private = found.conclusion.table.query("privacy == 'private'")
    assert private["epsilon_is"].eq("guaranteed").all()
    # One total ρ_z whatever τ and K are: one ε, below that of the classic bound ρ_z + 2√(ρ_z ln(1/δ)).
    assert private["epsilon"].nunique() == 1
    rho = spade_tradeoff.RHO_Z
    assert float(private["epsilon"].iloc[0]) < rho + 2 * math.sqrt(rho * math.log(1e5))
    assert [claim.holds for claim in found.conclusion.claims][::2] == [True, True]
    assert "feature map: dct, 16" in found.conclusion.paragraph()


def _extreme(entry):
    return entry.labels["tau"] in {"none": (20, 200), "private": (1000, 4000)}[entry.labels["privacy"]]


def _few_steps(entry):
    return _changed(entry, {"rounds": max(1, 400 // entry.labels["tau"])} if entry.labels["privacy"] == "none" else {})


@pytest.mark.slow
def test_accuracy_rises_with_epsilon(tmp_path):
    """Over three seeds, ε = 4 to 32: more than 5 points."""
    wanted = [
        e
        for e in spade_methods.epsilon_runs("small", [0, 1, 2])
        if _label(e, method="spade-dfl, baseline", candidate=0, held_out=False)
        and e.labels["epsilon_total"] in (4.0, 32.0)
    ]
    mean = carry_out(wanted, tmp_path, jobs=2).rows.groupby("epsilon_total")["accuracy"].mean()
    assert mean[32.0] > mean[4.0] + 0.05
