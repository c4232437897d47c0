"""The configuration that ``dualfed init`` writes: every field, its default, and what it means."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import tomlkit

from ..errors import InvalidValue

_WIDTH = 110

# One entry a field: a comment, and an example value for a field that is left out by default.
_HEAD: dict[str, tuple[str, Any]] = {
    "name": ("what the run is called; its folder is dualfed-out/NAME-k", None),
    "seed": ("the seed of every draw: split, partition, participants, batches and (if seeded) noise", None),
    "engine": ('"ray": clients live in actors; "inline": all in one process. The numbers are the same', None),
    "dtype": ('"float64" or "float32"', None),
    "evaluate_every": ("rounds between two evaluations of the released model on the test records", None),
    "checkpoint_every": ("rounds between two checkpoints, from which `dualfed resume` goes on", None),
    "record_states": ("keep every round's models and duals; needs memory for rounds × clients × parameters", None),
    "compare_without_privacy": ("`dualfed run` also runs the same configuration without privacy and prints both", None),
}
_SECTIONS: dict[str, tuple[str, dict[str, tuple[str, Any]]]] = {
    "data": (
        "Which records. Features are scaled record by record with public constants, which costs no privacy.",
        {
            "name": ('"digits", "breast-cancer", "synthetic", "idx" (MNIST layout) or "npz"', None),
            "path": ("the folder of idx files or the npz file; in a file, relative to that file", "data/fashion-mnist"),
            "test_fraction": ("share of the records held out, where the source has no test part of its own", None),
            "scale": ('"unit": every record gets norm 1; "none": features as given', None),
            "bias": ("add a column of ones", None),
            "records": ('"synthetic" only: records, training and test together', None),
            "features": ('"synthetic" only: features', None),
            "classes": ('"synthetic" only: classes', None),
            "spread": ('"synthetic" only: how far the classes lie apart', None),
        },
    ),
    "partition": (
        "Who holds which record.",
        {
            "scheme": ('"iid", or "dirichlet": each class is split by shares drawn from Dirichlet(alpha)', None),
            "clients": ("N", None),
            "alpha": ('"dirichlet" only: small values give clients of few classes and unequal sizes', None),
            "min_size": ("the fewest records of any client", None),
        },
    ),
    "problem": (
        "Model, loss and regulariser, and the constants that the sensitivity rests on.",
        {
            "kind": ('"softmax", "logistic" or "least-squares"', None),
            "regulariser": ('"none", "l2", "l1", "elastic-net", "box" or "ball"', None),
            "weight": ("of l2 (w/2)‖x‖², l1 w‖x‖₁, or the l1 part of elastic-net", None),
            "weight_l2": ("of the l2 part of elastic-net", None),
            "lower": ('"box" only', None),
            "upper": ('"box" only', None),
            "radius": ('"ball" only', None),
            "record_norm": ("a public bound on every record's norm, where the scaling gives none", 1.0),
            "clip": ("clip each record's gradient at this norm, for losses whose bound allows it", 1.0),
            "weights": ('"uniform": every client counts the same; "by-size": in proportion to its records', None),
        },
    ),
    "method": (
        "The method and its own parameters.",
        {
            "name": ("see `dualfed list`", None),
            "rounds": ("T", None),
            "participants": ("K clients a round, drawn without replacement; left out: all of them", 10),
            "local_steps": ("Q local steps a round", None),
            "batch_size": ("b records a step", None),
            "batches": (
                '"epoch" (Q disjoint batches: Q·b ≤ records of a client), "independent", "iid" or "full"',
                None,
            ),
            "rho": ("ρ, the penalty", None),
            "gamma": (
                'γ, the inverse step size: a number, {value = 1.0, shape = "sqrt"} for γ√t, or a list over rounds',
                None,
            ),
            "state": ('"released": guaranteed; "paper": the published form, whose ε is claimed, not guaranteed', None),
            "memory": (
                "s: how much of its own model and dual a client keeps; 1 is the method itself, less forgets noise",
                None,
            ),
        },
    ),
    "privacy": (
        "How much noise, and what may be spent.",
        {
            "mode": (
                '"total": all planned participations of a client cost (epsilon, delta) together; "per-round": every '
                'release costs (epsilon, round_delta); "noise-multiplier": as given; "zcdp": all planned '
                'participations together cost rho_z-zCDP; "none": no noise',
                None,
            ),
            "epsilon": ("ε of all participations (total) or of one release (per-round)", None),
            "delta": ("δ at which ε is stated", None),
            "round_delta": ('"per-round" only: δ of one release; left out: delta', 1e-5),
            "calibration": ('"per-round" only: "analytic", or "classic" (ε ≤ 1)', None),
            "noise_multiplier": ('"noise-multiplier" only: noise divided by sensitivity', 1.0),
            "rho_z": ('"zcdp" only: ρ_z of all participations of a client', 1.0),
            "budget": ("ε at delta at which the ledger stops a client, in all modes but total and none", 8.0),
            "noise": (
                '"seeded": repeatable, for simulations; "secret": fresh randomness, for really private records',
                None,
            ),
        },
    ),
    "topology": (
        "Which graph joins the clients; only for methods on a graph.",
        {
            "kind": (
                '"ring", "path", "star", "complete", "grid", "torus", "hypercube", "exponential", "erdos-renyi", '
                '"random-geometric", "watts-strogatz", "barabasi-albert", "random-regular", "edge-list" or "graphml"',
                None,
            ),
            "p": ('"erdos-renyi" only: probability of each edge; left out: min(1, 2 ln N / N)', 0.2),
            "radius": ('"random-geometric" only: nodes nearer than this are linked', 0.3),
            "degree": ('"random-regular", "watts-strogatz": neighbours of each node', 4),
            "rewire": ('"watts-strogatz" only: probability that an edge is moved', 0.1),
            "attach": ('"barabasi-albert" only: edges that a new node brings', 2),
            "rows": ('"grid", "torus": the shape; left out: the most nearly square one', 4),
            "cols": ('"grid", "torus"', 4),
            "path": ('"edge-list", "graphml": the file', "graph.edges"),
        },
    ),
    "actors": (
        "Where clients live.",
        {
            "clients_per_actor": (
                'a number, or "auto": one client an actor while they are few, else enough to fill the CPUs',
                None,
            ),
            "cpus": ("CPUs to use; left out: all", 2),
        },
    ),
}


def write_template(path: Path) -> None:
    """Write the commented configuration to ``path``.

    Raises:
        InvalidValue: the file is there already, or cannot be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(template())
    except FileExistsError:
        raise InvalidValue("FILE", str(path), "is there already; give another name, or remove it first") from None
    except OSError as error:
        raise InvalidValue("FILE", str(path), f"cannot be written: {error.strerror}") from None


def template() -> str:
    """The commented configuration, as TOML."""
    from ..algorithms.fedspd_dp import FedSPDDP
    from .config import RunConfig

    defaults = RunConfig()
    method = {"name": FedSPDDP.name} | {field.name: field.default for field in dataclasses.fields(FedSPDDP)}
    lines = ["# A run of dualfed. Values are the defaults; lines that are commented out show an example.", ""]
    lines += _fields(_HEAD, {name: getattr(defaults, name) for name in _HEAD})
    for section, (purpose, told) in _SECTIONS.items():
        values = method if section == "method" else getattr(defaults, section).model_dump()
        lines += ["", f"# {purpose}", f"[{section}]", *_fields(told, values)]
    return "\n".join(lines) + "\n"


def _fields(told: dict[str, tuple[str, Any]], values: dict[str, Any]) -> list[str]:
    lines = []
    for name, (meaning, example) in told.items():
        given = values[name]
        line = f"{name} = {_toml(example if given is None else given)}"
        lines += [*(f"# {part}" for part in textwrap.wrap(meaning, _WIDTH)), f"# {line}" if given is None else line]
    return lines


def _toml(value: Any) -> str:
    return str(tomlkit.item(value).as_string())
