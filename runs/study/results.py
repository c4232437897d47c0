"""The frames of a study: one row a run, and its runs' curves with the study's labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..results import RunResult, load_result
from .measures import MEASURES, measures
from .wanted import Wanted
from .work import FINISHED, ending_of


class Study:
    """Runs that took place below ``folder``.

    Attributes:
        wanted: what was asked for, in that order.
        faults: by the run's digest, the sentence of each run that was refused or failed.
    """

    def __init__(self, folder: Path, wanted: Sequence[Wanted], faults: Mapping[str, str]) -> None:
        self.folder, self.wanted, self.faults = folder, list(wanted), dict(faults)
        self._loaded: dict[str, RunResult] = {}
        # Entries that have a run in common may call it differently: it bears the name that the last of them gives it.
        self._folder_names = {entry.digest: entry.folder_name for entry in self.wanted}

    def results(self) -> Iterator[tuple[dict[str, Any], RunResult]]:
        """Labels and result of every finished run, in the order asked for."""
        for entry in self.wanted:
            folder = self.run_folder(entry)
            if entry.digest in self.faults or ending_of(folder) not in FINISHED:
                continue
            if entry.digest not in self._loaded:
                self._loaded[entry.digest] = load_result(folder)
            yield entry.labels, self._loaded[entry.digest]

    def run_folder(self, entry: Wanted) -> Path:
        """Where a run of this study is."""
        return self.folder / "runs" / self._folder_names[entry.digest]

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row a finished run: its labels, then `MEASURES`, then ``folder``."""
        rows = [{**labels, **measures(result), "folder": str(result.folder)} for labels, result in self.results()]
        names = [*(self.wanted[0].labels if self.wanted else ()), *MEASURES, "folder"]
        return pd.DataFrame(rows) if rows else pd.DataFrame(columns=names)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """The runs' ``metrics`` one below the other, with the labels as columns."""
        return self.frame("metrics")

    @cached_property
    def diagnostics(self) -> pd.DataFrame:
        """The runs' ``diagnostics``, NOT private, in the same way."""
        return self.frame("diagnostics")

    def frame(self, name: str) -> pd.DataFrame:
        """Any frame of the runs (``metrics``, ``diagnostics``, ``timing``, ``events``, ``clients``) with their labels."""
        parts = []
        for labels, result in self.results():
            part: pd.DataFrame = getattr(result, name)
            if len(part):
                parts.append(part.assign(**{label: [value] * len(part) for label, value in labels.items()}))
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @property
    def complete(self) -> bool:
        """Whether every run that was asked for is there."""
        return len(self.rows) == len(self.wanted)


def mean_and_deviation(values: Sequence[float] | np.ndarray | pd.Series) -> tuple[float, float]:
    """The mean and the standard deviation over runs (n − 1); the deviation of one value is NaN."""
    numbers = np.asarray(values, dtype=float)
    return float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else float("nan")
