"""How the functions of this package are compiled: without the interpreter's lock, and kept on disk between runs."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])

# Sums may be reordered and fused, which is what lets loops use the whole vector unit; NaN and infinity keep their meaning,
# so a run that diverges still shows it. A division by zero gives infinity: a check of each would end vector code too.
_OPTIONS: dict[str, Any] = {"nogil": True, "fastmath": {"reassoc", "contract", "nsz"}, "error_model": "numpy"}

_njit: Any = numba.njit


def kernel(function: F) -> F:
    """Compiles a function that only other kernels call; it is stored as a part of them."""
    # Wrappers for calls from Python would take a third of the compiler's time.
    return cast(F, _njit(**_OPTIONS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function))


def inlined(function: F) -> F:
    """As ``kernel``, for the few lines inside a loop that can be vectorised only once they stand in it."""
    return cast(F, _njit(**_OPTIONS, forceinline=True)(function))


def entry(function: F) -> F:
    """Compiles a function that Python calls, with its machine code kept on disk.

    Numba keeps it beside this file, or in the user's cache folder where that is read-only (``NUMBA_CACHE_DIR`` names
    another). Where neither can be written the function is compiled anew in each process.
    """
    try:
        return cast(F, _njit(**_OPTIONS, cache=True)(function))
    except RuntimeError:  # numba found no folder that it may write to
        return cast(F, _njit(**_OPTIONS)(function))


def _fingerprint() -> int:
    try:
        sources = [path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py"))]
    except OSError:  # imported from an archive: nothing there changes
        sources = []
    return int.from_bytes(hashlib.sha256(b"".join(sources)).digest()[:7], "little")


# Numba's disk cache looks at the file of the entry function alone and would serve stale machine code after a change in
# another file here. It does look at the values that a function closes over: every entry function closes over this one.
FINGERPRINT = _fingerprint()
