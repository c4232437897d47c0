"""``fedspd-fig2`` to ``fedspd-fig4``: accuracy and objective by ε̄, by K and by Q (SPEC section 7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..study import Study, Wanted
from .fedspd_setting import CLIENTS, SOURCE, data_remark, rising, sweep, sweep_figure, sweep_table
from .framework import Conclusion, Reproduction, Scale

BUDGETS = (0.5, 1.0, 3.0, 8.0)
"""ε̄ of figure 2, at K = 20 and Q = 5."""
PARTICIPANTS = (5, 20, 50, CLIENTS)
"""K of figure 3, at ε̄ = 1 and Q = 5."""
LOCAL_STEPS = (1, 2, 5, 10)
"""Q of figure 4, at ε̄ = 3 and K = 10."""

_SEEDS = {"small": 1, "full": 3}


def budget_runs(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    """Figure 2."""
    return sweep(scale, "fedspd-fig2", seeds, "epsilon_bar", BUDGETS, lambda _: (20, 5), lambda value: value)


def participant_runs(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    """Figure 3."""
    return sweep(scale, "fedspd-fig3", seeds, "participants", PARTICIPANTS, lambda value: (value, 5), lambda _: 1.0)


def local_step_runs(scale: Scale, seeds: Sequence[int]) -> list[Wanted]:
    """Figure 4."""
    return sweep(scale, "fedspd-fig4", seeds, "local_steps", LOCAL_STEPS, lambda value: (10, value), lambda _: 3.0)


def _concluding(by: str, symbol: str, title: str) -> Callable[[Study], Conclusion]:
    def conclude(study: Study) -> Conclusion:
        table = sweep_table(study, by)
        figure = sweep_figure(study, by, f"{symbol} = {{:g}}", title)
        return Conclusion(table, figure, rising(table, by, symbol), [data_remark(study)])

    return conclude


REPRODUCTIONS = [
    Reproduction(
        f"fedspd-fig{number}",
        title,
        SOURCE.format(number),
        plan,
        _concluding(by, symbol, f"FedSPD-DP: {title[0].lower()}{title[1:]}"),
        _SEEDS,
    )
    for number, title, plan, by, symbol in (
        (2, "Accuracy by total budget", budget_runs, "epsilon_bar", "ε̄"),
        (3, "Accuracy by participating clients", participant_runs, "participants", "K"),
        (4, "Accuracy by local steps", local_step_runs, "local_steps", "Q"),
    )
]
