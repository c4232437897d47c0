"""``compare``: tuned, run on the same seeds, and put beside each other."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ...algorithms.registry import make_method
from ...errors import InvalidValue, RunBroken
from ..study import Study, Wanted, carry_out
from ..study.results import mean_and_deviation
from ..validation import TUNING_SENTENCE
from .entries import Entry, Given, check_alike, for_seed, read_entries
from .grid import Candidate, best, check_equal_effort, method_grid, scored_by, words
from .statistics import LEVEL, paired_differences

Say = Callable[[str], None]


@dataclass(frozen=True)
class Comparison:
    """Methods beside each other.

    Attributes:
        runs: one row a run: method, seed, the measures of `dualfed.runs.study.measures.MEASURES`, folder.
        methods: one row a method: means and deviations over seeds, ε with its word, what was chosen by tuning.
        differences: one row a pair of methods and measure, on the same seeds, with an interval.
        tuning: one row a candidate, scored by validation records; empty where nothing was tuned.
        curves: one row an evaluation of a run: method, seed, round, accuracy, loss, epsilon_max, …
        notes: sentences that a reader of the tables must know.
        faults: runs that were refused or failed, as sentences.
        files: what was written.
    """

    runs: pd.DataFrame
    methods: pd.DataFrame
    differences: pd.DataFrame
    tuning: pd.DataFrame
    curves: pd.DataFrame
    notes: list[str]
    faults: list[str]
    folder: Path
    study: Study
    level: float
    files: list[Path] = field(default_factory=list)


def compare(
    configs: Sequence[Given],
    *,
    seeds: int = 3,
    tune: bool = False,
    validation: float = 0.2,
    out: Path | str = "dualfed-out/compare",
    engine: str = "inline",
    jobs: int = 1,
    level: float = LEVEL,
    say: Say | None = None,
) -> Comparison:
    """Run methods on the same records, partition, graph and seeds under the same budget.

    Seeds count up from the configurations' own. Every seed has the same records and test records; it draws partition,
    graph, participants, batches and noise anew.

    Args:
        configs: files, presets, tables or checked configurations, two or more.
        seeds: how many.
        tune: choose each method's parameters first, from the candidates of its table ``tune``, on the first seed, by
            records that each client holds out of its own (the share ``validation``). The cost of it is not in ε.
        out: the folder; what is finished there is not run again.
        engine: ``inline``, or ``ray`` for clients in actors.
        jobs: worker processes; with ``ray`` one run at a time.
        level: of the confidence intervals.

    Raises:
        InvalidValue: configurations that differ in more than their methods, grids of different size, or a value that
            cannot be run; nothing of that run was charged.
        RunBroken: no run of a method came to its end.
        StudyStopped: somebody stopped it; the same call goes on.
    """
    if seeds < 1:
        raise InvalidValue("--seeds", seeds, "give a whole number ≥ 1")
    if not 0 < level < 1:
        raise InvalidValue("level", level, "give a number between 0 and 1")
    entries = read_entries(configs)
    check_alike(entries)
    grids = {entry.label: method_grid(entry.config.tune, entry.label) for entry in entries} if tune else {}
    if tune:
        check_equal_effort(grids)
    folder, jobs = Path(out), 1 if engine == "ray" else jobs
    chosen: dict[str, Candidate] = {}
    tuning, faults = pd.DataFrame(), list[str]()
    if tune:
        tuning, chosen, faults = _tuned(entries, grids, validation, folder, engine, jobs, say)
    first = entries[0].config.seed
    wanted = [
        Wanted(
            {"method": entry.label, "seed": first + index},
            {**for_seed(entry.config, entry.label, first + index, chosen.get(entry.label)), "engine": engine},
        )
        for index in range(seeds)
        for entry in entries
    ]
    study = carry_out(wanted, folder, jobs=jobs, say=say)
    faults += [
        f"{entry.labels['method']}, seed {entry.labels['seed']}: {study.faults[entry.digest]}"
        for entry in wanted
        if entry.digest in study.faults
    ]
    return _concluded(entries, chosen, tuning, faults, study, folder, level, (seeds, tune, validation))


def _tuned(
    entries: Sequence[Entry],
    grids: Mapping[str, Sequence[Candidate]],
    validation: float,
    folder: Path,
    engine: str,
    jobs: int,
    say: Say | None,
) -> tuple[pd.DataFrame, dict[str, Candidate], list[str]]:
    wanted = [
        Wanted(
            {"method": entry.label, "candidate": position, "parameters": words(candidate)},
            {
                **for_seed(entry.config, entry.label, entry.config.seed, {**candidate, "data.validation": validation}),
                "engine": engine,
            },
        )
        for entry in entries
        for position, candidate in enumerate(grids[entry.label])
    ]
    for each in wanted:
        make_method(each.config.method)  # a parameter that the method does not have is no candidate
    study = carry_out(wanted, folder / "tuning", jobs=jobs, keep_refusals=True, say=say)
    chosen: dict[str, Candidate] = {}
    faults = []
    rows = study.rows.rename(columns={"accuracy": "validation_accuracy", "loss": "validation_loss"})
    for entry in entries:
        own = [each for each in wanted if each.labels["method"] == entry.label]
        wrong = [
            f"{each.labels['parameters']}: {study.faults[each.digest]}" for each in own if each.digest in study.faults
        ]
        faults += [f"{entry.label}, candidate {sentence}" for sentence in wrong]
        position = best(study.rows[study.rows["method"] == entry.label], wrong, entry.label)
        chosen[entry.label] = grids[entry.label][position]
    rows["chosen"] = [words(chosen[row["method"]]) == row["parameters"] for row in rows.to_dict("records")]
    return rows.drop(columns="folder"), chosen, faults


def _concluded(
    entries: Sequence[Entry],
    chosen: Mapping[str, Candidate],
    tuning: pd.DataFrame,
    faults: list[str],
    study: Study,
    folder: Path,
    level: float,
    effort: tuple[int, bool, float],
) -> Comparison:
    from .write import write

    labels = [entry.label for entry in entries]
    for label in labels:
        if not (study.rows["method"] == label).any():
            raise RunBroken(f"no run of {label} came to its end: {faults[0]}")
    _check_same_records(study)
    measures = [scored_by(study.rows), "objective"]
    differences = pd.concat(
        [paired_differences(study.rows, measure, labels, level) for measure in measures], ignore_index=True
    )
    found = Comparison(
        runs=study.rows,
        methods=_methods(labels, chosen, study.rows),
        differences=differences,
        tuning=tuning,
        curves=study.metrics,
        notes=_notes(entries, study, tuning, effort, level),
        faults=faults,
        folder=folder,
        study=study,
        level=level,
    )
    found.files.extend(write(found))
    return found


def _methods(labels: Sequence[str], chosen: Mapping[str, Candidate], rows: pd.DataFrame) -> pd.DataFrame:
    found = []
    for label in labels:
        part = rows[rows["method"] == label]
        row: dict[str, Any] = {"method": label, "seeds": len(part)}
        if label in chosen:
            row["tuned"] = words(chosen[label])
        for measure in ("accuracy", "loss", "objective"):
            row[measure], row[f"{measure}_deviation"] = mean_and_deviation(part[measure])
        row |= {
            "epsilon": part["epsilon"].max(),
            "epsilon_is": part["epsilon_is"].iloc[0],
            "delta": part["delta"].iloc[0],
            "unit": part["unit"].iloc[0],
            "rounds_done": part["rounds_done"].max(),
            "scalars_sent": part["scalars_sent"].mean(),
            "seconds": part["seconds"].mean(),
        }
        found.append(row)
    return pd.DataFrame(found)


def _check_same_records(study: Study) -> None:
    digests: dict[int, set[str]] = {}
    for labels, result in study.results():
        assert result.folder is not None
        facts = json.loads((result.folder / "environment.json").read_text())
        digests.setdefault(labels["seed"], set()).add(facts["data_digest"])
    for seed, found in digests.items():
        if len(found) > 1:
            raise RunBroken(f"the methods' records of seed {seed} are not the same; did the data's files change?")


def _notes(
    entries: Sequence[Entry], study: Study, tuning: pd.DataFrame, effort: tuple[int, bool, float], level: float
) -> list[str]:
    seeds, tune, validation = effort
    config, rows = entries[0].config, study.rows
    last = config.seed + seeds - 1
    said = [
        f"Seeds {config.seed} to {last}: the same records and test records, and at each seed the same partition and "
        "graph for all methods; participants, batches and noise are drawn anew at each seed."
        if seeds > 1
        else f"One seed, {config.seed}: nothing can be said of the spread."
    ]
    if tune:
        size = len(tuning) // len(entries) if len(tuning) else 0
        counts = f"{size} candidates" if size * len(entries) == len(tuning) else "a grid of equal size"
        said.append(
            f"Each method's parameters were chosen from {counts} on seed {config.seed}, by {100 * validation:g} % of every "
            f"client's records, held out; no test record was looked at. {TUNING_SENTENCE[0].upper()}{TUNING_SENTENCE[1:]}."
        )
    else:
        said.append(
            "Parameters are as given; what choosing them cost in privacy, if private data were used, is not in ε."
        )
    claimed = sorted(set(rows.loc[rows["epsilon_is"] == "claimed", "method"]))
    if claimed:
        said.append(f"The ε of {', '.join(claimed)} is claimed, not guaranteed.")
    references = sorted(set(rows.loc[rows["epsilon_is"] == "no noise", "method"]))
    if references:
        said.append(f"Without noise, as a reference: {', '.join(references)}.")
    units = rows[rows["epsilon_is"] != "no noise"].groupby("unit")["method"].unique()
    if len(units) > 1:
        each = "; ".join(f"one {unit}: {', '.join(sorted(set(names)))}" for unit, names in units.items())
        said.append(f"An ε protects different things here, and is not the same promise: {each}.")
    if seeds > 1:
        said.append(
            f"Intervals are Student's t at {100 * level:g} % for paired differences, each by itself, not adjusted for their "
            "number."
        )
    said.append("The objective is a non-private diagnostic of the simulation.")
    return said
