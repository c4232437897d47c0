"""What a reproduction is, and how one is carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from ...errors import InvalidValue, RunBroken
from ..cli_input import with_settings
from ..study import Study, Wanted, carry_out
from ..study.spread import by_tune
from ..study.workers import carried_out
from ..tables import markdown
from .other_data import with_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["small", "full"]
Say = Callable[[str], None]
_SEEDS: Mapping[str, int] = {"small": 1, "full": 3}


@dataclass(frozen=True)
class Claim:
    """One claim of a paper, beside what was measured.

    Attributes:
        says: the claim, as the subject of a sentence: "accuracy rises with ε̄".
        holds: whether it holds in these runs; None where they cannot tell.
        measured: the numbers that say so, with their spread where there is one.
    """

    says: str
    holds: bool | None
    measured: str

    def sentence(self) -> str:
        """The claim, the verdict and the numbers."""
        verdict = {True: "holds here", False: "does not hold here", None: "is not decided by these runs"}[self.holds]
        return f"That {self.says} {verdict}: {self.measured}."


@dataclass(frozen=True)
class Conclusion:
    """What a reproduction makes of its runs.

    Attributes:
        table: for ``NAME.csv`` and ``NAME.md``.
        figure: in the paper's arrangement.
        claims: for the paragraph.
        remarks: whole sentences that end the paragraph: sizes, data, feature maps, what was left out.
    """

    table: pd.DataFrame
    figure: Figure
    claims: list[Claim]
    remarks: list[str] = field(default_factory=list)

    def paragraph(self) -> str:
        """Which claims hold here, and which do not, by how much."""
        return " ".join([*(claim.sentence() for claim in self.claims), *self.remarks])


@dataclass(frozen=True)
class Reproduction:
    """A figure or table of a paper.

    Attributes:
        name: as in ``dualfed reproduce NAME``; title: what it shows; source: the paper, and where in it.
        plan: (scale, seeds) → its runs.
        conclude: its finished runs → table, figure and claims.
        seeds: how many seeds each scale takes by default.
    """

    name: str
    title: str
    source: str
    plan: Callable[[Scale, Sequence[int]], Sequence[Wanted]]
    conclude: Callable[[Study], Conclusion]
    seeds: Mapping[str, int] = field(default_factory=lambda: _SEEDS)


@dataclass(frozen=True)
class Reproduced:
    """A reproduction that was carried out: its frames, its conclusion, and the files written."""

    reproduction: Reproduction
    scale: str
    study: Study
    conclusion: Conclusion
    files: list[Path]


def reproduce(
    wanted: Reproduction | str,
    out: Path,
    *,
    scale: str = "small",
    seeds: int | None = None,
    jobs: int = 1,
    engine: str = "inline",
    data: str | Path | None = None,
    settings: Sequence[str] = (),
    say: Say | None = None,
) -> Reproduced:
    """Carry out a reproduction below ``out``; what is finished there is not run again.

    Args:
        scale: ``small``, or ``full`` for what the paper ran.
        seeds: 0 to seeds − 1; None takes the reproduction's own number.
        jobs: runs at a time.
        engine: ``ray`` spreads the runs over the cluster by Ray Tune, ``inline`` over worker processes.
        data: a file or preset whose data, problem and partition the runs take; see ``other_data``.
        settings: ``key=value``, put into every run's configuration.

    Raises:
        InvalidValue: no such reproduction or scale, or a configuration that cannot be run.
        RunBroken: a run failed; the others are kept.
        StudyStopped: somebody stopped it.
    """
    from .registry import reproduction

    chosen = reproduction(wanted) if isinstance(wanted, str) else wanted
    if scale not in ("small", "full"):
        raise InvalidValue("--scale", scale, "give small or full")
    if seeds is not None and seeds < 1:
        raise InvalidValue("--seeds", seeds, "give a whole number ≥ 1")
    counted = range(chosen.seeds[scale] if seeds is None else seeds)
    planned = list(chosen.plan("full" if scale == "full" else "small", list(counted)))
    if data is not None:
        planned = with_data(planned, data)
    if settings:
        planned = [_with(entry, settings) for entry in planned]
    study = carry_out(planned, out, jobs=jobs, say=say, carry=by_tune if engine == "ray" else carried_out)
    if study.faults:
        sentence = next(iter(study.faults.values()))
        raise RunBroken(
            f"{len(study.faults)} of {len(study.wanted)} runs of {chosen.name} {sentence}; the others are kept"
        )
    conclusion = chosen.conclude(study)
    return Reproduced(chosen, scale, study, conclusion, _written(chosen, scale, study, conclusion, out))


def _with(entry: Wanted, settings: Sequence[str]) -> Wanted:
    tables: dict[str, Any] = entry.config.model_dump(mode="json", exclude_unset=True)
    return Wanted(entry.labels, with_settings(tables, settings))


def _written(reproduction: Reproduction, scale: str, study: Study, conclusion: Conclusion, out: Path) -> list[Path]:
    from ..plots import save_figure
    from ..report.reproduction import reproduction_page

    name = reproduction.name
    table, shown, runs, text = (out / f"{name}{end}" for end in (".csv", ".md", "-runs.csv", ".txt"))
    conclusion.table.to_csv(table, index=False)
    shown.write_text(markdown(conclusion.table), encoding="utf-8")
    study.rows.drop(columns="folder").to_csv(runs, index=False)
    text.write_text(conclusion.paragraph() + "\n", encoding="utf-8")
    figures = save_figure(conclusion.figure, out / name)
    page = reproduction_page(reproduction, scale, study, conclusion, figures, out)
    return [table, shown, runs, text, *figures, page]
