"""The same run without privacy, for comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import RunConfig
    from .results import RunResult
    from .simulate import Listener

TWIN = "without-privacy"


def wants_twin(config: RunConfig, result: RunResult) -> bool:
    """Whether the configuration asks for it and the run came to its end."""
    if not config.compare_without_privacy or config.privacy.mode == "none" or result.folder is None:
        return False
    return result.ending in ("completed", "exhausted")


def run_twin(config: RunConfig, result: RunResult, listen: Listener) -> RunResult | None:
    """Run it in this process, into a folder of the run's; None if it did not complete.

    Small matrices gain nothing from more threads, and on busy cores they wait for each other: it uses one.
    """
    import torch

    from .config import parse
    from .simulate import simulate

    assert result.folder is not None
    plain: dict[str, Any] = config.model_dump()
    plain["privacy"]["mode"] = "none"
    plain |= {"engine": "inline", "compare_without_privacy": False, "record_states": False}
    torch.set_num_threads(1)
    twin = simulate(parse(plain), out=result.folder / TWIN, listen=listen)
    return twin if twin.ending == "completed" else None
