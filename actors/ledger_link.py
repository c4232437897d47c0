"""From any process of a cluster to the ledger of a run that goes on there."""

from __future__ import annotations

import contextlib
import logging
import os
from typing import Any

import ray
from ray.exceptions import RayActorError

from ..errors import InvalidValue
from .cluster import NAMESPACE, check_reachable, join
from .ledger_actor import actor_name, result
from .ledger_desk import LedgerGone
from .line import Line, LineGone

_PREFIX = actor_name("")
_ASK_S = 10.0


class LedgerLink:
    """Asks the ledger's actor of one run by its name: on its line where this is the same machine, else through Ray.

    Args:
        address: the cluster's, as ``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``; None where this process is connected.
        run: the run's id or, where one run of that name goes on there, its name.
        auth: how the cluster knows its users, as ``run.json`` says; None leaves it to the environment.

    Raises:
        InvalidValue: nobody answers at the address, or the run does not go on there.
    """

    def __init__(self, address: str | None, run: str, auth: str | None = None) -> None:
        self._address = address or "this process's cluster"
        self._line: Line | None = None
        self._closed = False
        self._own = _connect(address, auth)
        try:
            self._actor, self.name = _find(run, self._address)
            self._line = self._dial()
        except BaseException:
            self.close()
            raise

    @property
    def near(self) -> bool:
        """Whether questions go on the line: the actor is on this machine."""
        return self._line is not None

    def ask(self, question: str, **arguments: Any) -> Any:
        """The answer of the run's ``LedgerDesk``. Raises LedgerGone, and what the desk raises."""
        line = self._line
        if line is not None:
            try:
                return line.ask(question, arguments)
            except LineGone:
                self._line = None
        answer = self._call(self._actor.ask, question, arguments)
        if line is not None:  # the actor was lost, and is there again
            self._line = self._dial()
        return answer

    def close(self) -> None:
        """Leave the cluster, if this link joined it. Nothing can be asked any more."""
        self._closed = True
        line, self._line = self._line, None
        if line is not None:
            line.close()
        if self._own:
            ray.shutdown()
            self._own = False

    def _dial(self) -> Line | None:
        extension = self._call(self._actor.line)
        try:
            return None if extension is None else Line(extension)
        except LineGone:  # another machine, or another container
            return None

    def _call(self, method: Any, *arguments: Any) -> Any:
        """What a method of the actor returned, through Ray."""
        if self._left:  # Ray would start a cluster for the question
            raise self._gone()
        try:
            return result(method.remote(*arguments))
        except RayActorError:
            raise self._gone() from None
        except Exception:
            if self._left:  # while another thread waited for its answer
                raise self._gone() from None
            raise

    @property
    def _left(self) -> bool:
        """Whether this process is in the cluster no more: this link was closed, or the one that had joined for both."""
        return self._closed or not ray.is_initialized()

    def _gone(self) -> LedgerGone:
        if self._left:
            return LedgerGone(f"the connection to the cluster at {self._address} was closed here; connect again to ask")
        return LedgerGone(
            f"the ledger {self.name} at {self._address} is gone: its run is over; read the run's folder instead"
        )


def _connect(address: str | None, auth: str | None) -> bool:
    """Join the cluster; False where this process is in one already."""
    if ray.is_initialized():
        return False
    if address is None:
        raise InvalidValue("address", None, "give the cluster's HOST:PORT, as the run's run.json states it")
    check_reachable(address)
    if auth is not None and "RAY_AUTH_MODE" not in os.environ:
        os.environ["RAY_AUTH_MODE"] = auth
        from ray._raylet import Config  # type: ignore[attr-defined]

        Config.initialize("")  # Ray read the mode when it was imported
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        join(address)
    except Exception as error:  # Ray raises many kinds for an address where nobody answers
        with contextlib.suppress(Exception):
            ray.shutdown()
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise InvalidValue(
            "--address", address, f"no cluster answers there ({reason}); give that of run.json, from a node of it"
        ) from None
    return True


def _find(run: str, address: str) -> tuple[Any, str]:
    """The actor of a run, by its id or name, and the actor's name."""
    names = [
        actor["name"]
        for actor in ray.util.list_named_actors(all_namespaces=True)
        if actor["namespace"] == NAMESPACE and actor["name"].startswith(_PREFIX)
    ]
    if actor_name(run) in names:
        return ray.get_actor(actor_name(run), namespace=NAMESPACE), actor_name(run)
    found: dict[str, Any] = {}
    for name in names:
        with contextlib.suppress(ray.exceptions.RayError, ValueError):
            actor: Any = ray.get_actor(name, namespace=NAMESPACE)
            about: Any = ray.get(actor.ask.remote("about", {}), timeout=_ASK_S)
            if run == about.get("name"):
                found[name] = actor
    if len(found) == 1:
        name, actor = found.popitem()
        return actor, name
    there = ", ".join(sorted(name.removeprefix(_PREFIX) for name in (found or names))) or "none"
    cure = (
        "several runs of that name go on there; give one's id" if found else f"no such run goes on at {address}; there"
    )
    raise InvalidValue("RUN", run, f"{cure}: {there}")
