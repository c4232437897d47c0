"""A process joins a cluster; what the cluster does about it is played here."""

from __future__ import annotations

import pytest
import ray
from dualfed.actors.cluster import connected, join
from dualfed.errors import InvalidValue

NOT_STARTED = """Initialization failure from server:
Traceback (most recent call last):
  File "proxier.py", line 772, in Datapath
    raise RuntimeError(
RuntimeError: Starting Ray client server failed. See ray_client_server_23001.err for detailed logs.
"""


@pytest.fixture
def head(monkeypatch):
    """What the next tries of ``ray.init`` come to: None, or an error; and how often it was tried."""
    fates, tried = [], []

    def init(**options):
        tried.append(options["address"])
        if fate := fates.pop(0):
            raise fate

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    monkeypatch.setattr("dualfed.actors.cluster.check_reachable", lambda address: None)
    return fates, tried


def test_a_client_process_that_did_not_come_up_is_asked_for_again(head):
    fates, tried = head
    fates += [ConnectionError(NOT_STARTED), ConnectionError(NOT_STARTED), None]
    join("ray://there:10001")
    assert tried == ["ray://there:10001"] * 3


def test_not_for_ever_and_the_words_are_its_own(head):
    fates, tried = head
    fates += [ConnectionError(NOT_STARTED)] * 3
    with pytest.raises(InvalidValue, match=r"RuntimeError: Starting Ray client server failed") as caught:
        connected("ray://there:10001").__enter__()
    assert len(tried) == 3
    assert "File" not in str(caught.value)


def test_other_failures_are_said_at_once(head):
    fates, tried = head
    fates += [ConnectionError("version mismatch")]
    with pytest.raises(ConnectionError, match="mismatch"):
        join("ray://there:10001")
    assert len(tried) == 1
