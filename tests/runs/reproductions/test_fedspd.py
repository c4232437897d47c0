"""``dualfed reproduce fedspd-…``: plans, tables, claims, and the trends that the small runs show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from dualfed.runs.reproductions import (
    fedspd_loss,
    fedspd_methods,
    fedspd_rate,
    fedspd_setting,
    fedspd_sweeps,
    reproduce,
    reproduction,
)
from dualfed.runs.study import carry_out

NAMES = [f"fedspd-fig{number}" for number in range(2, 7)]
TINY = ["method.rounds=3", "evaluate_every=1", "data.records=8000", "data.classes=3"]


@pytest.mark.parametrize("name", NAMES)
def test_each_goes_from_its_plan_to_its_paragraph(name, tmp_path):
    # ten batches of ten distinct records (figure 4) need more of them at each client
    more = ["data.records=16000"] if name == "fedspd-fig4" else []
    found = reproduce(name, tmp_path, settings=[*TINY, *more], jobs=1)
    assert {entry.config.partition.clients for entry in found.study.wanted} == {100}
    assert len(found.study.rows) == len(found.study.wanted)
    assert (found.study.rows["rounds_done"] == 3).all()
    written = {path.name for path in found.files}
    assert {f"{name}.csv", f"{name}.png", f"{name}.txt", "report.html"} <= written
    text = found.conclusion.paragraph()
    assert "synthetic" in text
    assert "T = 3 rounds" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_claimed_form_never_stands_without_that_word(name, tmp_path):
    small = reproduction(name).plan("small", [0])
    forms = {"released", "paper"} if name != "fedspd-fig6" else {"released"}
    assert {e.config.method["state"] for e in small if e.config.method["name"] == "fedspd-dp"} == forms
    full = reproduction(name).plan("full", [0, 1, 2])
    assert len(full) == 3 * len(small)
    assert all(e.config.data.name == "idx" and e.config.partition.clients == 100 for e in full)


def test_rows_of_the_paper_form_carry_the_word(tmp_path):
    study = carry_out([_short(e) for e in fedspd_sweeps.budget_runs("small", [0])[::4]], tmp_path)
    table = fedspd_setting.sweep_table(study, "epsilon_bar").set_index("form")
    assert "claimed" not in table.loc["released", "epsilon"]
    assert table.loc["released", "epsilon_is"] == "guaranteed"
    assert "claimed" in table.loc["paper", "epsilon"]


def _short(entry, **method):
    from dualfed.runs.study import Wanted

    tables = entry.config.model_dump(mode="json", exclude_unset=True)
    tables["method"] = {**tables["method"], "rounds": 3, **method}
    return Wanted(entry.labels, tables)


@pytest.mark.parametrize(("last", "holds"), [(0.5, True), (0.3, False)])
def test_rising_follows_the_numbers(last, holds):
    table = pd.DataFrame(
        {"form": ["paper"] * 3, "K": [1, 2, 3], "accuracy": [0.2, 0.4, last], "objective": [2.0, 1.0, 1.5]}
    )
    accuracy, objective = fedspd_setting.rising(table, "K", "K")
    assert accuracy.holds is holds
    assert objective.holds is False
    assert "claimed" in accuracy.sentence()


def test_the_claims_about_methods_can_fail():
    table = pd.DataFrame(
        {
            "epsilon_round": [1.0] * 3,
            "method": ["fedspd-dp, released (guaranteed)", "dp-sgd", "dp-admm"],
            "accuracy": [0.5, 0.4, 0.6],
        }
    )
    (claim,) = fedspd_methods.method_claims(table)
    assert claim.holds is False
    assert "50.0 %" in claim.measured
    table["accuracy"] = [0.7, 0.4, 0.6]
    assert fedspd_methods.method_claims(table)[0].holds


def test_total_losses_are_the_ledgers_and_ordered_as_the_paper_says(tmp_path):
    study = carry_out([_short(entry) for entry in fedspd_loss.loss_runs("small", [0])], tmp_path, jobs=1)
    table = fedspd_loss.loss_table(study)
    assert (table["epsilon_is"] == "guaranteed").all()
    for _, row in table.iterrows():
        here = study.metrics[
            (study.metrics["method"] == row["method"]) & (study.metrics["participants"] == row["participants"])
        ]
        assert row["epsilon"] == pytest.approx(here["epsilon_max"].iloc[-1])
    ours = table[table["method"] != "dp-admm"]
    for participants, part in ours.groupby("participants"):
        admm = table[(table["method"] == "dp-admm") & (table["participants"] == participants)]["epsilon"].item()
        assert (part["epsilon"] < 0.8 * admm).all()


def test_the_law_is_fitted_where_it_holds_exactly():
    rows = [
        {"participants": k, "local_steps": q, "rounds": t, "work": k / 20 * t * q, "gap": 3 * (k / 20 * t * q) ** -0.5}
        for k, q in fedspd_rate.CELLS
        for t in (50, 100, 400)
    ]
    table = pd.DataFrame(rows)
    assert fedspd_rate.exponents(table) == pytest.approx({"pTQ": -0.5, "p": -0.5, "T": -0.5, "Q": -0.5})
    assert all(claim.holds for claim in fedspd_rate.rate_claims(table))
    table["gap"] = 1 / np.log(table["work"] + 10)
    assert not any(claim.holds for claim in fedspd_rate.rate_claims(table))


def test_a_short_rate_study_gives_table_figure_and_claims(tmp_path):
    study = carry_out(fedspd_rate.rate_runs([0], 60, 40), tmp_path)
    conclusion = reproduction("fedspd-rate").conclude(study)
    assert len(conclusion.table)
    assert (conclusion.table["gap"] > 0).all()
    assert set(zip(conclusion.table["participants"], conclusion.table["local_steps"], strict=True)) == set(
        fedspd_rate.CELLS
    )
    assert len(conclusion.claims) == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plan", "by", "points"),
    [
        (fedspd_sweeps.budget_runs, "epsilon_bar", 10),
        (fedspd_sweeps.participant_runs, "participants", 10),
        (fedspd_sweeps.local_step_runs, "local_steps", 5),
    ],
)
def test_accuracy_rises_from_the_first_value_to_the_last(plan, by, points, tmp_path):
    entries = plan("small", [0])
    values = sorted({entry.labels[by] for entry in entries})
    study = carry_out([e for e in entries if e.labels[by] in (values[0], values[-1])], tmp_path, jobs=2)
    for _, part in study.rows.groupby("form"):
        ends = part.set_index(by)
        assert 100 * (ends["accuracy"][values[-1]] - ends["accuracy"][values[0]]) > points
        assert ends["objective"][values[-1]] < ends["objective"][values[0]]
