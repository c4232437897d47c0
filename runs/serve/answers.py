"""The shapes of the JSON answers. An infinite number is ``null`` in JSON; a text beside it says what that means."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from .board import Condition, State


class Answer(BaseModel):
    """What every answer about a run says of itself."""

    model_config = ConfigDict(extra="forbid")

    exact_as_of_round: int = Field(
        description="The round of the last charge that every ε here includes; -1 before any."
    )
    state: State = Field(description="How the run stands.")


class Problem(BaseModel):
    """Why there is no answer, in one sentence."""

    error: str


class Run(Answer):
    """What the run is."""

    version: str = Field(description="Of dualfed.")
    identity: str = Field(description="Tells this run from every other one.")
    name: str
    method: str
    family: str = Field(description="server (a star) or graph.")
    engine: str
    clients: int
    rounds: int
    delta: float
    unit: str = Field(description="What two neighbouring data sets differ in: record, or client (a whole data set).")
    unit_text: str
    relation: Literal["replace-one"] = "replace-one"
    status: str = Field(description="guaranteed, or claimed: a bound that is not proven for this method.")
    mode: str = Field(description="How the noise was chosen; none adds no noise.")
    noise: str = Field(description="seeded or secret.")
    folder: str
    started: float | None = Field(description="Unix time in seconds.")
    warnings: list[str]


class Loss(BaseModel):
    """One ε with all that it takes to read it."""

    epsilon: float | None = Field(description="null: infinite, there is no noise.")
    text: str = Field(description="Rounded up; says when it is claimed, and when there is no noise.")
    delta: float
    status: str
    account: str
    account_text: str


class Summary(Answer):
    """How the run stands, in a few numbers."""

    note: str
    done: int = Field(description="Rounds that are complete.")
    rounds: int
    seen: float = Field(description="Unix time at which the server last read the run.")
    rounds_per_second: float | None
    sentence: str = Field(description="What the largest ε means, with everything that it rests on.")
    largest: Loss
    largest_client: int
    median: Loss
    budget: float | None = Field(description="The largest of all clients; null: there is none.")
    budget_text: str
    largest_share: float | None = Field(description="The largest ε over budget of any client.")
    releases: int
    conditions: dict[Condition, int] = Field(description="How many clients are in each condition.")
    counters: dict[str, int] = Field(description="How often what happened: refused, lost, failed, late, rebuilt.")
    scores: dict[str, float | None] = Field(description="The last evaluation on held-out records: accuracy, loss, …")
    diagnostics: dict[str, float | None] = Field(description="NOT private: computed from private data.")
    extra: dict[str, float | str | None] = Field(description="What else the run tells, such as simulated seconds.")


class Client(BaseModel):
    """One client's privacy loss against its budget."""

    client: int
    unit: str = Field(description="What two neighbouring data sets differ in: record, or client (a whole data set).")
    epsilon: float | None = Field(description="null: infinite, there is no noise.")
    epsilon_text: str
    budget: float | None = Field(description="null: there is none.")
    budget_text: str
    share: float | None = Field(description="ε over budget.")
    remaining: float | None = Field(description="Budget less ε; null: there is no budget.")
    remaining_text: str
    releases: int
    account: str
    account_text: str
    status: str
    condition: Condition


class Clients(Answer):
    """Some of the clients, in the order asked for."""

    delta: float
    total: int = Field(description="Clients that fit the filter.")
    offset: int
    clients: list[Client]


class ClientDetail(Answer):
    """One client, with every account of its releases."""

    delta: float
    client: Client
    accounts: list[Loss]
    rounds_left: float | None = Field(
        description="More rounds like its last one; null: without end, unknown, or not asked for."
    )
    rounds_left_text: str


class Charge(BaseModel):
    """One release that was paid for."""

    round: int
    grant: int
    kind: str
    noise_multiplier: float
    unit: str
    status: str
    wall: float = Field(description="Unix time in seconds at which it was written.")
    voided: bool


class History(Answer):
    """A client's charges, the newest first."""

    client: int
    total: int
    offset: int
    charges: list[Charge]


class Overview(Answer):
    """One number a client, for drawing all of them."""

    by: str
    status: str = Field(description="claimed as soon as one client's ε is; else guaranteed.")
    values: list[float | None] = Field(description="To six decimals, an ε and its share of the budget rounded up.")
    conditions: list[int] = Field(description="Positions in condition_names.")
    condition_names: list[str]


class Series(BaseModel):
    """Columns of equal length; the first is the round."""

    private: bool = Field(description="True: computed from private data and not released; for the simulation alone.")
    note: str
    columns: dict[str, list[float | None]]


class Metrics(Answer):
    """What was measured by round. Long series are thinned out."""

    status: str = Field(description="Whether every ε in the series is guaranteed, or claimed.")
    released: Series
    diagnostics: Series
    timing: Series


class Topology(Answer):
    """Who talks to whom, and where to draw it."""

    kind: str
    server: bool = Field(description="Every client talks to a server, which is no client.")
    note: str
    positions: list[tuple[float, float]] = Field(description="Within the unit square, by client.")
    edges: list[tuple[int, int]]


class Happening(BaseModel):
    """Something that happened."""

    number: int
    round: int
    wall: float | None
    kind: str
    clients: list[int]
    text: str


class Events(Answer):
    """What happened after the event that was asked for."""

    last: int = Field(description="The number of the newest event of all; ask for what comes after it.")
    events: list[Happening]


class Prospect(BaseModel):
    """What more rounds like its last one would come to for one client, if it took part in all of them."""

    client: int
    noise_multiplier: float | None = Field(description="Of each further release; null: unknown, or none would do.")
    rounds: float | None = Field(description="How many more; null: without end, or unknown before its first release.")
    rounds_text: str
    epsilon: float | None = Field(description="ε after them; null: without bound, or unknown.")
    epsilon_text: str
    budget: float | None
    status: str


class WhatIf(Answer):
    """What more rounds would come to."""

    delta: float
    prospects: list[Prospect]
