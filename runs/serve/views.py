"""Answers made from a board: the same words and roundings as everywhere else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from ... import __version__
from ..statement import account_name, epsilon_text, privacy_sentence, unit_name
from . import answers
from .board import CONDITIONS, Board, Columns

Sort = Literal["client", "epsilon", "budget", "share", "remaining", "releases", "condition", "account"]
Measure = Literal["share", "epsilon", "remaining", "releases"]
_POINTS = 500
_RATE_ROUNDS = 40
_PRIVATE_NOTE = "non-private diagnostics of the simulation: computed from private data, not a release"


def number(value: float) -> float | None:
    """The value for JSON, which knows neither infinity nor NaN."""
    return float(value) if math.isfinite(value) else None


def run(board: Board) -> answers.Run:
    facts = board.facts
    return answers.Run(
        exact_as_of_round=board.exact_round,
        state=board.state,
        version=__version__,
        identity=facts.identity,
        name=facts.name,
        method=facts.method,
        family="graph" if facts.graph else "server",
        engine=facts.engine,
        clients=facts.clients,
        rounds=facts.rounds,
        delta=facts.delta,
        unit=facts.unit,
        unit_text=unit_name(facts.unit),
        status=facts.status,
        mode=facts.mode,
        noise=facts.noise,
        folder=facts.folder,
        started=number(facts.started),
        warnings=list(facts.warnings),
    )


def loss(epsilon: float, delta: float, status: str, account: str, least: int = 2) -> answers.Loss:
    return answers.Loss(
        epsilon=number(epsilon),
        text=epsilon_text(epsilon, status, least),
        delta=delta,
        status=status,
        account=account,
        account_text=account_name(account),
    )


def summary(board: Board) -> answers.Summary:
    facts, accounts = board.facts, board.accounts
    worst = int(np.argmax(accounts.epsilon))
    middle = int(np.argsort(accounts.epsilon, kind="stable")[(len(accounts.epsilon) - 1) // 2])
    status = _status(board)
    budget, share = float(accounts.budget.max()), accounts.share
    counted = np.bincount(board.condition, minlength=len(CONDITIONS))
    return answers.Summary(
        exact_as_of_round=board.exact_round,
        state=board.state,
        note=board.note,
        done=board.done,
        rounds=facts.rounds,
        seen=board.seen,
        rounds_per_second=rate(board),
        sentence=privacy_sentence(
            float(accounts.epsilon[worst]),
            facts.delta,
            status=status,
            unit=accounts.unit[worst],
            account=accounts.account[worst],
            noise=facts.noise,
        ),
        largest=loss(float(accounts.epsilon[worst]), facts.delta, status, accounts.account[worst]),
        largest_client=int(accounts.client[worst]),
        median=loss(float(np.median(accounts.epsilon)), facts.delta, status, accounts.account[middle]),
        budget=number(budget),
        budget_text=_budget_text(budget, status),
        largest_share=None if np.isnan(share).all() else float(np.nanmax(share)),
        releases=int(accounts.releases.sum()),
        conditions={name: int(counted[place]) for place, name in enumerate(CONDITIONS)},
        counters=dict(board.counters),
        scores=_last(board.metrics),
        diagnostics=_last(board.diagnostics),
        extra={name: number(v) if isinstance(v, float) else v for name, v in board.extra.items()},
    )


def _status(board: Board) -> str:
    """Of all that is said of the run: claimed as soon as one account is."""
    return "claimed" if "claimed" in board.accounts.status else board.facts.status


def _budget_text(budget: float, status: str) -> str:
    if math.isinf(budget):
        return "–"
    return f"{budget:g} (claimed)" if status == "claimed" else f"{budget:g}"


def _last(columns: Columns) -> dict[str, float | None]:
    return {name: number(values[-1]) for name, values in columns.items() if len(values) and name != "wall"}


def rate(board: Board) -> float | None:
    """Rounds a second over the last rounds; None where too few are known."""
    walls = board.timing.get("wall", ())
    if len(walls) >= 3:
        recent = walls[-_RATE_ROUNDS:]
        span = recent[-1] - recent[0]
        return number((len(recent) - 1) / span) if span > 0 else None
    return None


def order(board: Board, sort: Sort, descending: bool) -> np.ndarray:
    """Positions in the board's accounts, sorted; equal ones by client, and what has no number last."""
    accounts = board.accounts
    match sort:
        case "client":
            keys: np.ndarray = accounts.client
        case "condition":
            keys = board.condition[accounts.client]
        case "account":
            keys = np.unique(np.array(accounts.account), return_inverse=True)[1]
        case _:
            keys = getattr(accounts, sort)
    values = keys.astype(np.float64)
    missing = np.isnan(values)
    return np.lexsort((accounts.client, -values if descending else values, missing))


def clients(
    board: Board,
    *,
    sort: Sort,
    descending: bool,
    offset: int,
    limit: int,
    chosen: Sequence[tuple[int, int]] | None,
    condition: str | None,
    least_share: float | None,
) -> answers.Clients:
    """A page of the table; ``chosen`` are ranges of client numbers, both ends included."""
    accounts = board.accounts
    keep = np.ones(len(accounts.client), dtype=bool)
    if chosen is not None:
        keep = np.logical_or.reduce([(accounts.client >= low) & (accounts.client <= high) for low, high in chosen])
    if condition is not None:
        keep &= board.condition[accounts.client] == CONDITIONS.index(condition)
    if least_share is not None:
        keep &= np.nan_to_num(accounts.share, nan=-1.0) >= least_share
    places = order(board, sort, descending)
    places = places[keep[places]]
    return answers.Clients(
        exact_as_of_round=board.exact_round,
        state=board.state,
        delta=board.facts.delta,
        total=len(places),
        offset=offset,
        clients=[client(board, int(place)) for place in places[offset : offset + limit]],
    )


def client(board: Board, place: int) -> answers.Client:
    """One row of the table, by its position in the board's accounts."""
    accounts = board.accounts
    epsilon, budget, status = float(accounts.epsilon[place]), float(accounts.budget[place]), accounts.status[place]
    who, left = int(accounts.client[place]), max(0.0, budget - epsilon) if math.isfinite(budget) else math.inf
    return answers.Client(
        client=who,
        unit=accounts.unit[place],
        epsilon=number(epsilon),
        epsilon_text=epsilon_text(epsilon, status),
        budget=number(budget),
        budget_text=_budget_text(budget, status),
        share=number(float(accounts.share[place])),
        remaining=number(left),
        remaining_text="–" if math.isinf(left) else _floor_text(left, status),
        releases=int(accounts.releases[place]),
        account=accounts.account[place],
        account_text=account_name(accounts.account[place]),
        status=status,
        condition=CONDITIONS[board.condition[who]],
    )


def _floor_text(left: float, status: str) -> str:
    """What is left of a budget, rounded down: never more than there is."""
    text = f"{math.floor(left * 100 + 1e-6) / 100:.2f}"
    return f"{text} (claimed)" if status == "claimed" else text


def overview(board: Board, by: Measure) -> answers.Overview:
    accounts = board.accounts
    values = board.by_client(np.asarray(getattr(accounts, by), dtype=np.float64))
    outwards = np.floor if by == "remaining" else np.ceil  # a bound that is rounded stays one
    rounded = outwards(values * 1e6) / 1e6
    return answers.Overview(
        exact_as_of_round=board.exact_round,
        state=board.state,
        by=by,
        status=_status(board),
        values=[number(value) for value in rounded.tolist()],
        conditions=board.condition.tolist(),
        condition_names=list(CONDITIONS),
    )


def metrics(board: Board) -> answers.Metrics:
    return answers.Metrics(
        exact_as_of_round=board.exact_round,
        state=board.state,
        status=_status(board),
        released=_series(board.metrics, True, "computed from released models, on held-out records"),
        diagnostics=_series(board.diagnostics, False, _PRIVATE_NOTE),
        timing=_rates(board.timing),
    )


def _series(columns: Columns, public: bool, note: str) -> answers.Series:
    rows = len(columns.get("round", ()))
    places = np.unique(np.linspace(0, rows - 1, min(rows, _POINTS)).round().astype(int)) if rows else np.zeros(0, int)
    shown = {name: [number(values[place]) for place in places] for name, values in columns.items() if name != "wall"}
    return answers.Series(private=not public, note=note, columns=shown)


def _rates(columns: Columns) -> answers.Series:
    """Rounds a second over stretches of rounds, by the wall clock."""
    walls, rounds = columns.get("wall", ()), columns.get("round", ())
    note = "of this machine, by the wall clock"
    if len(walls) < 3:
        return answers.Series(private=False, note=note, columns={"round": [], "rounds_per_second": []})
    places = np.unique(np.linspace(0, len(walls) - 1, min(len(walls), 121)).round().astype(int))
    found: dict[str, list[float | None]] = {"round": [], "rounds_per_second": []}
    for first, last in pairwise(places):
        span = walls[last] - walls[first]
        found["round"].append(float(rounds[last]))
        found["rounds_per_second"].append(number((rounds[last] - rounds[first]) / span) if span > 0 else None)
    return answers.Series(private=False, note=note, columns=found)


def events(board: Board, since: int, limit: int) -> answers.Events:
    """The newest ``limit`` of what happened from number ``since`` on."""
    found = [happening for happening in board.happenings if happening.number >= since][-limit:]
    return answers.Events(
        exact_as_of_round=board.exact_round,
        state=board.state,
        last=board.happenings[-1].number if board.happenings else -1,
        events=[
            answers.Happening(
                number=each.number,
                round=each.round,
                wall=number(each.wall),
                kind=each.kind,
                clients=list(each.clients),
                text=each.text,
            )
            for each in found
        ],
    )


def tick(board: Board) -> dict[str, Any]:
    """What the stream sends: enough to know what to ask for again."""
    return {
        "identity": board.facts.identity,
        "version": board.version,
        "versions": dict(board.versions),
        "state": board.state,
        "done": board.done,
        "exact_as_of_round": board.exact_round,
    }
