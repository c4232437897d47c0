"""Who only watches a run gives way to it where cores are scarce."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

_NICE = 10


def stand_back() -> None:
    """Give this thread, and on systems other than Linux nothing, a tenth of the weight of one that works on a run."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            thread = threading.get_native_id()
            if os.getpriority(os.PRIO_PROCESS, thread) < _NICE:
                os.setpriority(os.PRIO_PROCESS, thread, _NICE)
