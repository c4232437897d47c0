"""What tests of more than one folder share."""

from __future__ import annotations

import pytest


@pytest.fixture
def stop_after(monkeypatch):
    """``stop_after(t)``: a listener that asks the running loop to stop once it has seen round ``t``."""
    from dualfed.actors import job

    loops = []
    original = job.RoundLoop.__init__

    def remember(loop, *arguments, **named):
        original(loop, *arguments, **named)
        loops.append(loop)

    monkeypatch.setattr(job.RoundLoop, "__init__", remember)

    def make(t):
        def listen(event):
            if event["kind"] == "round" and event["round"] == t:
                loops[-1].request_stop()

        return listen

    return make
