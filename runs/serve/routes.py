"""What can be asked over HTTP, and the checks of what is asked."""

from __future__ import annotations

import functools
import math
import re
import threading
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import anyio.to_thread
from fastapi import APIRouter, HTTPException, Query
from fastapi import Path as InPath
from fastapi.responses import Response
from pydantic import BaseModel

from ...errors import InvalidValue
from ..statement import epsilon_text
from . import answers, views
from .board import Board, Condition
from .layout import drawing
from .watch import Watch

_PAGE = 1000
_MANY = 100_000_000
_REFUSALS: dict[int | str, dict[str, Any]] = {
    401: {"model": answers.Problem, "description": "The token is missing or wrong."},
    422: {"model": answers.Problem, "description": "A parameter is wrong; the sentence names it."},
}
_MISSING: dict[int | str, dict[str, Any]] = {404: {"model": answers.Problem, "description": "There is no such client."}}

FROM_THE_BOARD = frozenset(f"/api/{name}" for name in ("run", "summary", "metrics", "events", "clients", "overview"))
"""The paths whose answers are made from the newest board alone."""

ClientNumber = Annotated[int, InPath(ge=0, description="A client, numbered from 0.")]
Offset = Annotated[int, Query(ge=0, le=_MANY, description="How many to leave out first.")]
Limit = Annotated[int, Query(ge=1, le=_PAGE, description="How many to send at most.")]
Delta = Annotated[float | None, Query(gt=0, lt=1, description="Another δ than the run's.")]


def make_router(watch: Watch, folder: Path) -> APIRouter:
    """The endpoints below ``/api``, answered from ``watch``; ``folder`` holds the run."""
    router = APIRouter(prefix="/api", responses=_REFUSALS)
    _add_run(router, watch, folder)
    _add_clients(router, watch)
    _add_ledger(router, watch)
    return router


def _add_run(router: APIRouter, watch: Watch, folder: Path) -> None:
    guard = threading.Lock()

    @functools.cache
    def drawn() -> dict[str, Any]:
        facts = watch.board.facts
        return drawing(folder, facts.clients, facts.graph)

    def drawn_once() -> dict[str, Any]:
        with guard:
            return drawn()

    @router.get("/run", tags=["run"])
    async def run() -> answers.Run:
        """What the run is: method, clients, rounds, δ, unit, and whether its ε is guaranteed or claimed."""
        return views.run(watch.asked())

    @router.get("/summary", tags=["run"], response_model=answers.Summary)
    async def summary() -> Response:
        """How the run stands: rounds, largest and median ε, last scores, what went wrong so far."""
        return _written(views.summary(watch.asked()))

    @router.get("/metrics", tags=["run"], response_model=answers.Metrics)
    async def metrics() -> Response:
        """Accuracy, loss, objective and speed by round, at most 500 points each; diagnostics are not private."""
        return _written(views.metrics(watch.asked()))

    @router.get("/topology", tags=["run"])
    async def topology() -> answers.Topology:
        """Who talks to whom, and where to draw it."""
        board = watch.asked()
        found = await anyio.to_thread.run_sync(drawn_once)
        return answers.Topology(exact_as_of_round=board.exact_round, state=board.state, **found)

    @router.get("/events", tags=["live"], response_model=answers.Events)
    async def events(
        since: Annotated[int, Query(ge=0, le=_MANY, description="The first event number wanted.")] = 0,
        limit: Limit = 200,
    ) -> Response:
        """Refusals, failures, lost hosts and the like; ``/api/stream`` says when there is something new."""
        return _written(views.events(watch.asked(), since, limit))


def _add_clients(router: APIRouter, watch: Watch) -> None:
    @router.get("/clients", tags=["clients"], response_model=answers.Clients)
    async def clients(
        sort: Annotated[views.Sort, Query(description="What to sort by; equal ones by client.")] = "client",
        order: Annotated[Literal["asc", "desc"], Query()] = "asc",
        offset: Offset = 0,
        limit: Limit = 100,
        client: Annotated[str, Query(max_length=500, description="Numbers and ranges, such as 3,17,40-60.")] = "",
        condition: Annotated[Condition | None, Query(description="Only clients in this condition.")] = None,
        least_share: Annotated[
            float | None, Query(ge=0, le=1, description="Only clients with ε/budget from here.")
        ] = None,
    ) -> Response:
        """Every client's ε against its budget: sorted, filtered, page by page."""
        page = views.clients(
            watch.asked(),
            sort=sort,
            descending=order == "desc",
            offset=offset,
            limit=limit,
            chosen=_ranges(client),
            condition=condition,
            least_share=least_share,
        )
        return _written(page)

    @router.get("/overview", tags=["clients"], response_model=answers.Overview)
    async def overview(by: Annotated[views.Measure, Query()] = "share") -> Response:
        """One number a client and the condition of each, for drawing all of them."""
        return _written(views.overview(watch.asked(), by))


def _written(answer: BaseModel) -> Response:
    """The answer as it is sent: it was made by its model, and is not checked against it once more."""
    return Response(answer.model_dump_json(), media_type="application/json")


def _ranges(text: str) -> list[tuple[int, int]] | None:
    """``"3,40-60"`` as ``[(3, 3), (40, 60)]``; None for all. Raises InvalidValue."""
    if not text.strip():
        return None
    found = []
    for part in re.split(r"[,\s]+", text.strip().strip(",")):
        match = re.fullmatch(r"(\d{1,9})(?:[-–](\d{1,9}))?", part)
        if match is None:
            raise InvalidValue("client", part, "give numbers and ranges, such as 3,17,40-60")
        found.append((int(match[1]), int(match[2] or match[1])))
    return found


def _add_ledger(router: APIRouter, watch: Watch) -> None:
    source = watch.source
    slow = anyio.CapacityLimiter(1)  # however many ask for what takes long, it is worked out one after the other

    def known(client: int) -> Board:
        board = watch.asked()
        if client >= board.facts.clients:
            raise HTTPException(404, f"client {client} does not exist: clients are 0 to {board.facts.clients - 1}")
        return board

    async def asked_for(client: int, delta: float | None, every: bool) -> tuple[Any, float | None]:
        """What a client has spent, and how many more rounds it has left if ``every`` is asked for."""

        def ask() -> tuple[Any, float | None]:
            return source.epsilon(client, delta, every=every), source.remaining(client).rounds if every else None

        return await anyio.to_thread.run_sync(ask, limiter=slow if every else None)

    @router.get("/clients/{client}", tags=["clients"], responses=_MISSING)
    async def one(
        client: ClientNumber,
        delta: Delta = None,
        every: Annotated[
            bool, Query(description="Also what takes longer: the slow accounts, and rounds_left.")
        ] = False,
    ) -> answers.ClientDetail:
        """One client, with every account of its releases, and how many more rounds its budget allows."""
        board = known(client)
        spent, left = await asked_for(client, delta, every)
        at = {spent.account: spent.epsilon, **spent.alternatives}
        places = [place for place, who in enumerate(board.accounts.client) if who == client]
        return answers.ClientDetail(
            exact_as_of_round=spent.round,
            state=board.state,
            delta=spent.delta,
            client=views.client(board, places[0]),
            accounts=[
                views.loss(epsilon, spent.delta, spent.status, name, 5)
                for name, epsilon in sorted(at.items(), key=lambda item: item[1])
            ],
            rounds_left=None if left is None else views.number(left),
            rounds_left_text=_rounds_text(left) if every else "not asked for",
        )

    @router.get("/clients/{client}/history", tags=["clients"], responses=_MISSING)
    def history(client: ClientNumber, offset: Offset = 0, limit: Limit = 100) -> answers.History:
        """What a client was charged for, the newest first."""
        board = known(client)
        at = int(source.about()["round"])  # asked first: the charges are at least as new
        charges = list(reversed(source.history(client)))
        return answers.History(
            exact_as_of_round=at,
            state=board.state,
            client=client,
            total=len(charges),
            offset=offset,
            charges=[_charge(charge) for charge in charges[offset : offset + limit]],
        )

    @router.get("/what-if", tags=["clients"], responses=_MISSING)
    async def what_if(
        rounds: Annotated[int | None, Query(ge=1, le=10_000_000, description="How many more rounds.")] = None,
        noise: Annotated[float | None, Query(gt=0, le=1e6, description="Their noise multiplier.")] = None,
        budget: Annotated[float | None, Query(gt=0, le=1e6, description="The ε to fit into.")] = None,
        client: Annotated[int | None, Query(ge=0, description="One client; all, left out.")] = None,
        delta: Delta = None,
    ) -> answers.WhatIf:
        """How many more rounds fit at this noise, which noise fits this many rounds, and what ε that comes to."""
        board = watch.asked() if client is None else known(client)
        ask = functools.partial(source.what_if, rounds, noise, budget, client, delta)
        found = await anyio.to_thread.run_sync(ask, limiter=slow)
        return answers.WhatIf(
            exact_as_of_round=found.round,
            state=board.state,
            delta=found.delta,
            prospects=[_prospect(found, place) for place in range(len(found.client))],
        )


def _charge(charge: Any) -> answers.Charge:
    return answers.Charge(
        round=charge.round,
        grant=charge.number,
        kind=charge.event.kind,
        noise_multiplier=charge.event.noise_multiplier,
        unit=charge.event.unit,
        status=charge.event.status,
        wall=charge.wall,
        voided=charge.voided,
    )


def _prospect(found: Any, place: int) -> answers.Prospect:
    epsilon, rounds, status = float(found.epsilon[place]), float(found.rounds[place]), str(found.status[place])
    return answers.Prospect(
        client=int(found.client[place]),
        noise_multiplier=views.number(float(found.noise[place])),
        rounds=views.number(rounds),
        rounds_text=_rounds_text(None if math.isnan(rounds) else rounds),
        epsilon=views.number(epsilon),
        epsilon_text="unknown" if math.isnan(epsilon) else epsilon_text(epsilon, status),
        budget=views.number(float(found.budget[place])),
        status=status,
    )


def _rounds_text(rounds: float | None) -> str:
    """How many more rounds, in words."""
    return "unknown" if rounds is None else "without end" if math.isinf(rounds) else f"{rounds:.0f}"
