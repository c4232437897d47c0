"""From the ``[time]`` and ``[policy]`` tables to what a coordinator needs: every check that takes the method or the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import pandas as pd

from ..actors.delays import DelayModel, Trace
from ..actors.policies import GRAPH_KINDS, SERVER_KINDS, Policy
from ..actors.timing import TimeSettings
from ..algorithms.method import GraphMethod, Method, ServerMethod
from ..errors import InvalidValue
from .time_config import PolicyConfig, TimeConfig


def check_policy(policy: PolicyConfig, method: Method, clients: int, mode: str) -> None:
    """Refuse a policy that does not fit the method or the clients. Raises InvalidValue."""
    kinds = GRAPH_KINDS if isinstance(method, GraphMethod) else SERVER_KINDS
    if policy.kind not in kinds:
        raise InvalidValue("policy.kind", policy.kind, f"{method.name} can take {', '.join(kinds)}")
    if policy.kind == "deadline" and policy.deadline_s is None:
        raise InvalidValue("policy.deadline_s", None, 'kind = "deadline" needs it; give seconds > 0')
    if policy.kind == "lossy" and not getattr(method, "per_edge", False):
        raise InvalidValue("policy.kind", policy.kind, f'{method.name} has no form by edges; take "barrier"')
    if not isinstance(method, ServerMethod):
        return
    chosen = clients if method.participants is None else method.participants
    if policy.kind == "over-select" and not 1 <= policy.extra <= clients - chosen:
        raise InvalidValue(
            "policy.extra",
            policy.extra,
            f"{chosen} of {clients} clients take part; give from 1 to {clients - chosen}"
            if clients > chosen
            else "all clients take part already; set method.participants below their number",
        )
    if policy.kind == "async":
        if policy.buffer > chosen:
            raise InvalidValue("policy.buffer", policy.buffer, f"{chosen} clients are at work; give at most that many")
        if policy.cap is None and mode in ("total", "zcdp"):
            mean = method.rounds * policy.buffer / clients
            raise InvalidValue(
                "policy.cap",
                None,
                f"arrivals decide how often a client takes part ({mean:.3g} times in the mean), and privacy.mode = {mode!r} "
                "calibrates noise beforehand; state the most participations of a client",
            )


def time_settings(
    time: TimeConfig,
    policy: PolicyConfig,
    method: Method,
    seed: int,
    participants: list[np.ndarray],
    clients: int,
    bytes_down: int,
    bytes_up: int,
    graph: nx.Graph | None = None,
) -> TimeSettings | None:
    """What the coordinator needs of both tables; None where nothing takes time and all are waited for.

    Raises:
        InvalidValue: fields that do not go together, a trace that cannot be read or lacks a time that will be needed.
    """
    if not time.passes and policy.kind in ("wait", "barrier"):
        return None
    _check_fields(time, policy, clients)
    trace = None if time.trace is None else read_trace(Path(time.trace), clients)
    if trace is not None and trace.by == "round":
        _check_trace(trace, policy, participants, clients)
    model = DelayModel(
        seed=seed,
        clients=clients,
        compute=time.compute,
        mean_s=time.mean_s,
        sigma=time.sigma,
        shape=time.shape,
        slow_fraction=time.slow_fraction,
        slow_factor=time.slow_factor,
        speed_spread=time.speed_spread,
        speeds=None if time.speeds is None else np.array(time.speeds),
        trace=trace,
        latency_s=time.latency_s,
        bandwidth=np.inf if time.bandwidth is None else time.bandwidth,
        dropout=time.dropout,
        online_s=time.online_s,
        offline_s=time.offline_s,
        absences=None if time.churn_trace is None else read_absences(Path(time.churn_trace), clients),
        message_drop=time.message_drop,
    )
    chosen = getattr(method, "participants", None)
    settled = Policy(
        kind=policy.kind,
        take=chosen if policy.kind == "over-select" else None,
        deadline_s=policy.deadline_s if policy.kind == "deadline" else None,
        working=clients if chosen is None else chosen,
        buffer=policy.buffer,
        staleness=policy.staleness,
    )
    links = None if graph is None else np.array(sorted({*graph.edges(), *((j, i) for i, j in graph.edges())}))
    if links is not None:
        links = links.reshape(-1, 2)
    return TimeSettings(model, settled, time.clock, bytes_down, bytes_up, links)


def _check_fields(time: TimeConfig, policy: PolicyConfig, clients: int) -> None:
    if (time.compute == "trace") != (time.trace is not None):
        cure = 'compute = "trace" needs the file' if time.trace is None else 'it is read with compute = "trace" only'
        raise InvalidValue("time.trace", time.trace, cure)
    if time.speeds is not None and len(time.speeds) != clients:
        raise InvalidValue("time.speeds", f"{len(time.speeds)} numbers", f"give one for each of the {clients} clients")
    if (time.online_s is None) != (time.offline_s is None):
        raise InvalidValue("time.online_s", time.online_s, "give online_s and offline_s together, or neither")
    if time.online_s is not None and time.churn_trace is not None:
        raise InvalidValue("time.churn_trace", time.churn_trace, "give a trace or online_s and offline_s, not both")
    if time.message_drop and policy.kind != "lossy":
        raise InvalidValue("time.message_drop", time.message_drop, 'messages are lost with policy.kind = "lossy" only')


def _check_trace(trace: Trace, policy: PolicyConfig, participants: list[np.ndarray], clients: int) -> None:
    """Every time that will be asked for must be there before anything runs."""
    if policy.kind == "async":
        if policy.cap is None:
            raise InvalidValue(
                "policy.cap", None, "a trace by round needs to know how often a client may start at most"
            )
        who, when = np.repeat(np.arange(clients), policy.cap), np.tile(np.arange(1, policy.cap + 1), clients)
    else:
        who = np.concatenate(participants)
        when = np.repeat(np.arange(1, len(participants) + 1), [len(chosen) for chosen in participants])
    trace.check(who, when)


def read_trace(path: Path, clients: int) -> Trace:
    """A csv with the columns client, round or time, and seconds. Raises InvalidValue."""
    frame = _read(path, "time.trace")
    by: Literal["round", "time"] | None = "round" if "round" in frame else "time" if "time" in frame else None
    if by is None or "client" not in frame or "seconds" not in frame:
        raise InvalidValue("time.trace", str(path), "its first line must name client, round or time, and seconds")
    columns = [_numbers(frame, name, "time.trace", path) for name in ("client", by, "seconds")]
    return Trace(by, columns[0].astype(np.int64), columns[1], columns[2], clients)


def read_absences(path: Path, clients: int) -> np.ndarray:
    """A csv with the columns client, time and online (1 or 0): ``[rows, 3]``. Raises InvalidValue."""
    frame = _read(path, "time.churn_trace")
    if not {"client", "time", "online"} <= set(frame.columns):
        raise InvalidValue("time.churn_trace", str(path), "its first line must name client, time and online (1 or 0)")
    rows = np.stack([_numbers(frame, name, "time.churn_trace", path) for name in ("client", "time", "online")], axis=1)
    strange = rows[(rows[:, 0] < 0) | (rows[:, 0] >= clients) | ~np.isin(rows[:, 2], (0, 1))]
    if len(strange):
        raise InvalidValue(
            "time.churn_trace", strange[0].tolist(), f"clients are 0 to {clients - 1}, and online is 1 or 0"
        )
    return rows


def _read(path: Path, field: str) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path)
    except (OSError, UnicodeDecodeError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        reason = getattr(error, "strerror", None) or "it is not a csv file"
        raise InvalidValue(field, str(path), f"cannot be read: {reason}") from None
    frame.columns = [str(name).strip() for name in frame.columns]
    if not len(frame):
        raise InvalidValue(field, str(path), "holds no rows")
    return frame


def _numbers(frame: pd.DataFrame, name: str, field: str, path: Path) -> Any:
    values = pd.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(values).any():
        row = int(np.flatnonzero(np.isnan(values))[0])
        raise InvalidValue(
            field, str(path), f"line {row + 2} has no number under {name}; a missing time is not zero, fill it in"
        )
    return values
