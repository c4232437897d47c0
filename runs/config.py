"""The configuration of a run: one TOML file, checked once here and trusted everywhere else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from ..section import Section, refusal
from ..topology.config import TopologyConfig
from .data_config import DataConfig as DataConfig
from .data_config import PartitionConfig as PartitionConfig
from .time_config import PolicyConfig as PolicyConfig
from .time_config import TimeConfig as TimeConfig


class ProblemConfig(Section):
    """Model, loss and regulariser (P1), and the constants that its sensitivity rests on."""

    kind: str = "softmax"  # any registered problem: which there are is known once algorithms are loaded
    regulariser: Literal["none", "l2", "l1", "elastic-net", "box", "ball"] = "none"
    weight: float = Field(0.0, ge=0, allow_inf_nan=False)
    weight_l2: float = Field(0.0, ge=0, allow_inf_nan=False)
    lower: float = -1.0
    upper: float = 1.0
    radius: float = Field(1.0, gt=0)
    record_norm: float | None = Field(None, ge=1e-6, le=1e6)
    clip: float | None = Field(None, gt=0, allow_inf_nan=False)
    weights: Literal["uniform", "by-size"] = "uniform"
    smoothing: float = Field(0.5, gt=0, allow_inf_nan=False)
    model: str = "mlp"
    model_options: dict[str, Any] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)


class PrivacyConfig(Section):
    """How much noise, and what may be spent.

    ``mode``: ``total`` solves each client's noise multiplier so that all its planned participations together cost
    (``epsilon``, ``delta``); ``per-round`` calibrates every release to (``epsilon``, ``round_delta``);
    ``noise-multiplier`` takes ``noise_multiplier`` as given; ``zcdp`` spreads ``rho_z``-zCDP evenly over a client's
    planned participations; ``none`` adds no noise. ``budget`` is the total ε, at
    ``delta``, at which the ledger stops a client in the last three modes (in ``total`` it is ``epsilon``).
    """

    mode: Literal["total", "per-round", "noise-multiplier", "zcdp", "none"] = "total"
    epsilon: float | None = Field(8.0, ge=1e-4, le=1e4)
    delta: float = Field(1e-5, ge=1e-30, le=0.1)
    round_delta: float | None = Field(None, ge=1e-30, le=0.1)
    calibration: Literal["classic", "analytic"] = "analytic"
    noise_multiplier: float | None = Field(None, ge=1e-2, le=1e6)
    rho_z: float | None = Field(None, ge=1e-9, le=1e4)
    budget: float | None = Field(None, ge=1e-4, le=1e4)
    noise: Literal["seeded", "secret"] = "seeded"


class ActorsConfig(Section):
    """Where clients live, and on what they compute."""

    clients_per_actor: Annotated[int, Field(ge=1)] | Literal["auto"] = "auto"
    cpus: int | None = Field(None, gt=0)
    threads: int = Field(1, gt=0)
    device: Literal["cpu", "cuda"] = "cpu"
    gpus_per_actor: float = Field(0.0, ge=0, allow_inf_nan=False)


class RunConfig(Section):
    """A whole run. ``method`` is the method's name and its own parameters, which the method checks itself."""

    name: str = Field(
        "run",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
        description="up to 63 letters, digits, dots, dashes and underscores, of which a letter or a digit is the first",
    )
    seed: int = Field(0, ge=0, lt=2**62)
    engine: Literal["ray", "inline"] = "ray"
    dtype: Literal["float64", "float32"] = "float64"
    evaluate_every: int = Field(5, gt=0)
    checkpoint_every: int = Field(25, gt=0)
    record_states: bool = False
    compare_without_privacy: bool = False
    data: DataConfig = DataConfig()
    partition: PartitionConfig = PartitionConfig()
    topology: TopologyConfig = TopologyConfig()
    problem: ProblemConfig = ProblemConfig()
    method: dict[str, Any] = Field(default_factory=lambda: {"name": "fedspd-dp"})
    privacy: PrivacyConfig = PrivacyConfig()
    time: TimeConfig = TimeConfig()
    policy: PolicyConfig = PolicyConfig()
    actors: ActorsConfig = ActorsConfig()
    # Candidates for `dualfed compare --tune`, such as method.rho = [0.1, 1.0]; a run by itself takes none of them.
    tune: dict[str, Any] = Field(default_factory=dict)


def parse(values: Mapping[str, Any]) -> RunConfig:
    """A checked configuration. Raises InvalidValue naming the first field that is wrong."""
    try:
        return RunConfig.model_validate(dict(values))
    except ValidationError as error:
        raise refusal(error, RunConfig, values) from None
