"""``sweep``: one method over a grid of parameters, scored by records that its clients hold out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...algorithms.registry import make_method
from ...errors import InvalidValue
from ..cli_input import parse_value
from ..study import Study, Wanted, carry_out
from ..study.spread import by_tune
from ..study.workers import carried_out
from ..validation import TUNING_SENTENCE
from .entries import Given, for_seed, read_one
from .grid import best, candidates, flattened, scored_by, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Say = Callable[[str], None]


@dataclass(frozen=True)
class Sweep:
    """A grid that was run.

    Attributes:
        runs: one row a run: candidate, the swept keys, seed, and the measures; accuracy and loss are those of the
            validation records.
        table: one row a candidate: means and deviations over seeds, ε with its word.
        best: the chosen candidate's keys and values.
        notes, faults: sentences. files: what was written.
    """

    runs: pd.DataFrame
    table: pd.DataFrame
    best: dict[str, Any]
    notes: list[str]
    faults: list[str]
    files: list[Path]


def read_grid(given: Sequence[str]) -> dict[str, list[Any]]:
    """``method.rho=0.1,1,10`` as the axis ``{"method.rho": [0.1, 1, 10]}``.

    Raises:
        InvalidValue: no ``=``, no values, or the same key twice.
    """
    axes: dict[str, list[Any]] = {}
    for text in given:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not key or not equals or not values:
            raise InvalidValue("--grid", text, "give key=value,value,…, such as method.rho=0.1,1,10")
        if key in axes:
            raise InvalidValue("--grid", text, "this key has a grid already; give all its values at once")
        whole = parse_value(values)
        axes[key] = whole if isinstance(whole, list) else [parse_value(part.strip()) for part in values.split(",")]
    return flattened(axes, "--grid")


def sweep(
    config: Given,
    grid: Mapping[str, Sequence[Any]],
    *,
    seeds: int = 1,
    validation: float = 0.2,
    out: Path | str = "dualfed-out/sweep",
    engine: str = "inline",
    jobs: int = 1,
    say: Say | None = None,
) -> Sweep:
    """Run a configuration with every combination of ``grid``'s values.

    Every client holds out the share ``validation`` of its records; accuracy and loss are those of the held-out records,
    and no test record is looked at. The choice looks at private data, and its cost is not in ε.

    Args:
        config: a file, a preset, tables or a checked configuration.
        grid: dotted keys of the configuration, each with its values.
        seeds: how many, from the configuration's own upwards.
        out: the folder; what is finished there is not run again.
        engine: ``ray`` spreads the runs over the cluster by Ray Tune, ``inline`` over worker processes.
        jobs: runs at a time.

    Raises:
        InvalidValue: a key or value that cannot be, or Ray Tune cannot be imported.
        RunBroken: no candidate came to its end.
        StudyStopped: somebody stopped it; the same call goes on.
    """
    if seeds < 1:
        raise InvalidValue("--seeds", seeds, "give a whole number ≥ 1")
    axes = flattened({key: list(values) for key, values in grid.items()}, "--grid")
    if not axes:
        raise InvalidValue("--grid", {}, "give one or more, such as --grid method.rho=0.1,1,10")
    for key in axes:
        if key.split(".")[0] in ("seed", "name", "engine", "tune") or key == "data.validation":
            raise InvalidValue("--grid", key, "the sweep sets this itself; choose another key")
    _, checked = read_one(config)
    all_of = candidates(axes)
    wanted = [
        Wanted(
            {"candidate": position, **candidate, "seed": checked.seed + index},
            for_seed(checked, checked.name, checked.seed + index, {**candidate, "data.validation": validation}),
        )
        for index in range(seeds)
        for position, candidate in enumerate(all_of)
    ]
    for entry in wanted:
        make_method(entry.config.method)  # a parameter that the method does not have is no candidate
    carry = by_tune if engine == "ray" else carried_out
    study = carry_out(wanted, Path(out), jobs=jobs, keep_refusals=True, say=say, carry=carry)
    faults = [
        f"{words({key: entry.labels[key] for key in axes})}, seed {entry.labels['seed']}: {study.faults[entry.digest]}"
        for entry in wanted
        if entry.digest in study.faults
    ]
    position = best(study.rows, faults, "the grid")
    notes = [
        f"{len(all_of)} candidates, {seeds} seed{'' if seeds == 1 else 's'}; accuracy and loss are those of "
        f"{100 * validation:g} % of every client's records, held out.",
        f"{TUNING_SENTENCE[0].upper()}{TUNING_SENTENCE[1:]}.",
    ]
    table = _table(study.rows, list(axes), position)
    found = Sweep(study.rows, table, all_of[position], notes, faults, [])
    found.files.extend(_written(found, axes, study, Path(out)))
    return found


def _table(rows: pd.DataFrame, keys: list[str], chosen: int) -> pd.DataFrame:
    from .write import epsilon_with_word

    found = []
    for candidate, part in rows.groupby("candidate", sort=True):
        first = part.iloc[0]
        found.append(
            {
                **{key: first[key] for key in keys},
                "validation_accuracy": part["accuracy"].mean(),
                "validation_accuracy_deviation": part["accuracy"].std(ddof=1),
                "validation_loss": part["loss"].mean(),
                "epsilon": epsilon_with_word(part["epsilon"].max(), first["epsilon_is"]),
                "rounds_done": part["rounds_done"].max(),
                "scalars_sent": part["scalars_sent"].mean(),
                "seconds": part["seconds"].mean(),
                "seeds": len(part),
                "best": "best" if candidate == chosen else "",
            }
        )
    return pd.DataFrame(found)


def _written(found: Sweep, axes: Mapping[str, Sequence[Any]], study: Study, out: Path) -> list[Path]:
    from ..plots import save_figure
    from ..report.comparison import study_sections
    from ..report.page import Block, Page, Section, Text, picture, table, write_page
    from ..tables import markdown

    runs, csv, text = out / "sweep-runs.csv", out / "sweep.csv", out / "sweep.md"
    found.runs.drop(columns="folder").to_csv(runs, index=False)
    found.table.to_csv(csv, index=False)
    lines = [*found.notes, f"Best: {words(found.best)}.", *found.faults]
    text.write_text(markdown(found.table) + "\n" + "\n".join(f"* {line}" for line in lines) + "\n", encoding="utf-8")
    figures = save_figure(_figure(found, axes), out / "sweep")
    shown: list[Block] = [
        table(found.table),
        picture(figures[1], "Validation score against each parameter."),
        *map(Text, lines),
    ]
    sections = [Section("Candidates", shown), *study_sections(study, "candidate", found.faults)]
    page = write_page(Page("Sweep", ", ".join(axes), sections), out / "report.html")
    return [runs, csv, text, *figures, page]


def _figure(found: Sweep, axes: Mapping[str, Sequence[Any]]) -> Figure:
    """A panel for each parameter: each candidate's score, and a line through the best at each value."""
    from ..reproductions.figures import COLORS, panels

    measure = scored_by(found.runs)
    scale = 100 if measure == "accuracy" else 1
    figure, places = panels(len(axes), f"Best: {words(found.best)}")
    scores = scale * found.table[f"validation_{measure}"]
    for place, (key, values) in zip(places, axes.items()):
        numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
        order = sorted(values) if numbers else list(values)
        at = {value: value if numbers else position for position, value in enumerate(order)}
        place.plot([at[value] for value in found.table[key]], scores, "o", color=COLORS[0], alpha=0.5)
        grouped = scores.groupby(found.table[key])
        top = grouped.max() if measure == "accuracy" else grouped.min()
        kept = [value for value in order if value in top.index]
        place.plot(
            [at[value] for value in kept],
            [top[value] for value in kept],
            "-",
            color=COLORS[1],
            label="best at each value",
        )
        if numbers and min(order) > 0 and max(order) >= 10 * min(order):
            place.set_xscale("log")
        if not numbers:
            place.set_xticks(range(len(order)), [str(value) for value in order])
        place.set_xlabel(key)
        place.set_ylabel("validation accuracy (%)" if measure == "accuracy" else "validation loss")
        place.axvline(at[found.best[key]], color="#8a8a8a", linestyle=":", linewidth=1)
        place.legend(frameon=False, fontsize=8.5)
    assert np.isfinite(scores).any()
    return figure
