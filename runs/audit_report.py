"""An audit from beginning to end: what the ledger says, what is exact, what many releases prove, and the verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from ..errors import InvalidValue
from ..keys import noise_key, stream_key
from ..privacy.accountants import Accountant, Epsilon, check_delta, total_shift
from ..privacy.audit import Lower, lower_bound, mixture_epsilon
from ..privacy.events import EpochEvent, GaussianEvent
from ..privacy.profiles import gaussian_epsilon
from .audit_cases import Case, cases
from .audit_replay import account_of, batch_shifts, exact_mu, log_ratios, samples_records
from .plots import save_figure
from .statement import epsilon_label

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_ROUNDING = 1 + 1e-6


@dataclass(frozen=True)
class Row:
    """What an audit found of one case.

    Attributes:
        spent: the ledger's ε at δ for all rounds.
        claimed_mu: √(Σ 1/z²), the Gaussian-privacy parameter that the ledger's events add up to; ``gaussian`` says that
            it is the whole account.
        mu: the pair's exact parameter; None where releases are mixtures.
        pair_epsilon: the pair's ε at δ, computed; None where it is not known.
        lower: what repeated releases prove; None where none were made.
    """

    case: Case
    delta: float
    spent: Epsilon
    claimed_mu: float
    gaussian: bool
    mu: float | None
    pair_epsilon: float | None
    lower: Lower | None

    @property
    def mu_epsilon(self) -> float | None:
        """ε of a Gaussian mechanism whose μ is the lower bound; None where the account is not Gaussian."""
        return gaussian_epsilon(self.delta, self.lower.mu) if self.lower is not None and self.gaussian else None

    @property
    def exceeds(self) -> bool:
        """Whether anything found lies above what the account says."""
        found = [self.pair_epsilon, None if self.lower is None else self.lower.epsilon]
        over = any(each is not None and each > self.spent.epsilon * _ROUNDING for each in found)
        shifts = [self.mu, self.lower.mu if self.lower is not None and self.gaussian else None]
        return over or any(each is not None and each > self.claimed_mu * _ROUNDING for each in shifts)

    @property
    def consistent(self) -> bool:
        """A guaranteed bound must hold; a claimed one may fail, and says so."""
        return self.spent.status == "claimed" or not self.exceeds

    @property
    def share(self) -> float:
        """The largest ε found, computed or proven, as a share of the ledger's."""
        found = [self.pair_epsilon, self.mu_epsilon, None if self.lower is None else self.lower.epsilon]
        return max(each for each in found if each is not None) / self.spent.epsilon

    @property
    def verdict(self) -> str:
        """In words."""
        if self.spent.status == "claimed":
            times = (self.mu or 0.0) / self.claimed_mu
            return f"exceeds its claim {times:.1f}×" if self.exceeds else "within its claim on this pair"
        return "EXCEEDS the guarantee" if self.exceeds else f"below, reaches {np.floor(100 * self.share):.0f} %"


def audit(
    name: str,
    given: Mapping[str, Any] | None = None,
    *,
    rounds: int = 10,
    noise_multiplier: float | None = None,
    delta: float = 1e-5,
    trials: int = 20000,
    confidence: float = 0.99,
    seed: int = 0,
    noise_factor: float = 1.0,
    say: Callable[[str], object] = lambda _: None,
) -> list[Row]:
    """Audit a method; one row a case.

    Args:
        name: ``fedspd-dp`` or ``spade-dfl``.
        given: parameters of the method to change.
        rounds: T of the repeated releases.
        noise_multiplier: z of them; None is √T/2, so that μ = 2.
        delta: δ of every ε.
        trials: runs on each of the two data sets.
        confidence: with which both lower bounds of a row hold together.
        seed: of every draw.
        noise_factor: scales what the gate adds; 1 but to see that the audit notices.
        say: told what is at work.

    Raises InvalidValue for a value out of its range.
    """
    check_delta(delta, "--delta")
    z = float(np.sqrt(rounds) / 2) if noise_multiplier is None else noise_multiplier
    for field, value, holds, cure in (
        ("--rounds", rounds, rounds >= 1, "give a whole number ≥ 1"),
        ("--noise-multiplier", z, 0 < z < np.inf, "give a finite number > 0"),
        ("--noise-factor", noise_factor, 0 < noise_factor < np.inf, "give a finite number > 0"),
        ("--trials", trials, trials >= 400, "give at least 400"),
        ("--confidence", confidence, 0 < confidence < 1, "give a number between 0 and 1, such as 0.99"),
    ):
        if not holds:
            raise InvalidValue(field, value, cure)
    key, accountant, found = noise_key(seed), Accountant(), []
    for number, case in enumerate(cases(name, given or {}, rounds, z, key)):
        say(f"{case.label}, {batches_of(case)} batches, {case.pairs.words}")
        account = account_of(case.method, case.pairs, case.noise_multiplier)
        gaussian = all(isinstance(event, GaussianEvent) for event in account)
        mu = float(exact_mu(case.method, case.pairs, case.noise_multiplier)[0]) if gaussian else None
        pair = _mixture(case, delta) if mu is None else gaussian_epsilon(delta, mu)
        lower = _repeat(case, key, number, trials, delta, confidence, noise_factor) if case.trials else None
        spent = accountant.epsilon(account, delta)
        found.append(Row(case, delta, spent, total_shift(account), gaussian, mu, pair, lower))
    return found


def batches_of(case: Case) -> str:
    """How the case draws records: ``full``, ``epoch``, …; queries of function values draw in their own way."""
    return str(getattr(case.method, "batches", "query"))


def _repeat(case: Case, key: bytes, number: int, trials: int, delta: float, confidence: float, factor: float) -> Lower:
    keys = [stream_key(key, f"audit/trials/{number}/{side}").to_bytes(16, "little") for side in (0, 1)]
    # Single precision: noise is drawn many times quicker, and what is audited includes that generator.
    pairs, z = case.pairs.to(torch.float32), case.noise_multiplier
    under, other = (log_ratios(case.method, pairs, side, trials, z, keys[side], factor) for side in (0, 1))
    return lower_bound(under, other, delta, confidence)


def _mixture(case: Case, delta: float) -> float | None:
    """The pair's ε where every round shows the same mixture."""
    account = account_of(case.method, case.pairs, case.noise_multiplier)
    event = next(iter(account))
    if len(account) > 1 or not isinstance(event, EpochEvent) or not samples_records(case.method):
        return None
    shifts, _ = batch_shifts(case.method, case.pairs, case.noise_multiplier, 1)
    return mixture_epsilon(event.rate, shifts, case.method.rounds, delta)


def frame(rows: list[Row]) -> pd.DataFrame:
    """The rows as a table of numbers: what is printed, drawn and written."""
    import pandas as pd

    return pd.DataFrame(
        [
            {
                "method": row.case.method.name,
                "case": row.case.label,
                "batches": batches_of(row.case),
                "pair": row.case.pairs.words,
                "unit": row.spent.unit,
                "rounds": row.case.method.rounds,
                "noise_multiplier": row.case.noise_multiplier,
                "delta": row.delta,
                "ledger_epsilon": row.spent.epsilon,
                "account": row.spent.account,
                "status": row.spent.status,
                "claimed_mu": row.claimed_mu,
                "exact_mu": row.mu,
                "pair_epsilon": row.pair_epsilon,
                "lower_epsilon": None if row.lower is None else row.lower.epsilon,
                "lower_mu": None if row.lower is None else row.lower.mu,
                "lower_mu_epsilon": row.mu_epsilon,
                "fitted_mu": None if row.lower is None else row.lower.fitted_mu,
                "trials": None if row.lower is None else row.lower.trials,
                "confidence": None if row.lower is None else row.lower.confidence,
                "verdict": row.verdict,
                "consistent": row.consistent,
            }
            for row in rows
        ]
    )


def write_audit(rows: list[Row], folder: Path) -> list[Path]:
    """Write ``audit.csv`` and the plot into ``folder``; the files. Raises InvalidValue where that cannot be done."""
    from matplotlib.figure import Figure

    try:
        folder.mkdir(parents=True, exist_ok=True)
        table = folder / "audit.csv"
        frame(rows).to_csv(table, index=False)
        figure = Figure(figsize=(8.4, 1.4 + 0.62 * len(rows)), layout="constrained")
        _draw(figure.add_subplot(), rows)
        return [table, *save_figure(figure, folder / "audit")]
    except OSError as error:
        raise InvalidValue("--out", str(folder), f"cannot be written: {error.strerror}") from None


def _draw(axes: Axes, rows: list[Row]) -> None:
    """ε of every row: the ledger's as a bar, what was found as marks."""
    table = frame(rows)
    places = np.arange(len(rows))[::-1]
    for status, color in (("guaranteed", "#c9d8ea"), ("claimed", "#ecd5c8")):
        chosen = np.asarray(table["status"] == status)
        if chosen.any():
            word = "guaranteed" if status == "guaranteed" else "claimed, not guaranteed"
            axes.barh(
                places[chosen],
                table["ledger_epsilon"][chosen],
                color=color,
                label=f"the ledger's {epsilon_label('guaranteed')}, {word}",
            )
    for column, mark, words in (
        ("pair_epsilon", "|", "this pair's ε, computed"),
        ("lower_mu_epsilon", ">", "lower bound of a Gaussian mechanism"),
        ("lower_epsilon", "o", "lower bound of any mechanism"),
    ):
        values = np.asarray(table[column], dtype=float)
        if np.isfinite(values).any():
            size = 220 if mark == "|" else 36
            axes.scatter(values, places, marker=mark, s=size, label=words, color="#222222", linewidths=1.4, zorder=3)
    names = [f"{r.case.label}, {batches_of(r.case)}\n{r.case.pairs.words}" for r in rows]
    axes.set_yticks(places, names, fontsize=8)
    if len(rows) > 1:
        axes.set_xscale("log")
    axes.set_xlabel(f"ε at δ = {rows[0].delta:g}")
    axes.set_title(f"Audit of {rows[0].case.method.name}", loc="left", fontsize=11)
    axes.grid(True, axis="x", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.figure.legend(frameon=False, fontsize=8, loc="outside lower center", ncols=2)
