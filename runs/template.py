"""The configuration that ``dualfed init`` writes: every field, its default, and what it means."""

from __future__ import annotations

import dataclasses
import textwrap
from pathlib import Path
from typing import Any

import tomlkit

from ..errors import InvalidValue
from .template_graph import NEED_CLIP, graph_words
from .template_server import server_words
from .template_spade import SPADE

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
    "tune": (
        "candidates that `dualfed compare --tune` chooses from; `dualfed run` leaves them alone",
        {"method.rho": [0.1, 1.0]},
    ),
}
_SECTIONS: dict[str, tuple[str, dict[str, tuple[str, Any]]]] = {
    "data": (
        "Which records. Features depend on one record and on public constants, which costs no privacy.",
        {
            "name": (
                '"digits", "breast-cancer", "synthetic", "idx" (MNIST layout), "npz", "csv", "parquet", "image-folder" '
                '(train/CLASS/*.png, test/CLASS/*.png) or "hub" (Hugging Face; needs dualfed[hub])',
                None,
            ),
            "path": ("the file, or the folder of idx files or images; in a file, relative to that file", "my/data.csv"),
            "test_path": ('"csv", "parquet": a given test set, relative to the folder of path', "test.csv"),
            "test_fraction": (
                "share held out where there is no test set; where the data name clients, of each client",
                None,
            ),
            "scale": ('"unit": every record gets norm 1; "none": features as they are', None),
            "bias": ("add a column of ones", None),
            "records": ('"synthetic" only: records, training and test together', None),
            "features": ('"synthetic" only: features', None),
            "classes": ('"synthetic" only: classes', None),
            "spread": ('"synthetic" only: how far the classes lie apart', None),
            "label": ('"csv", "parquet", "hub": the column of the labels', "income"),
            "label_classes": (
                "the value of each class, or a list of its values; left out: whole numbers from 0, or real targets",
                ["<=50K", ">50K"],
            ),
            "client": ("the column that names who holds the record", "hospital"),
            "ranges": (
                "numeric columns: a public least and most value, mapped to 0..1; what lies outside is cut",
                {"age": [17, 90]},
            ),
            "centred": ("map ranges to -1..1 instead", None),
            "standardise": ("numeric columns: a public mean and deviation", {"height": [170, 10]}),
            "categories": ("categorical columns: their public values", {"colour": ["red", "green"]}),
            "statistics": (
                '"public": constants are those above; "private": those of the columns below are computed from the '
                "training records, which no ε accounts for and every summary says",
                None,
            ),
            "numeric": ("further numeric columns, standardised by private statistics", ["weight"]),
            "categorical": ("further categorical columns, their values by private statistics", ["city"]),
            "missing": (
                'records without a value: "refuse", "drop" or "indicator" (marked by a column of its own), or one of '
                'these words for each column, such as {age = "indicator"}',
                None,
            ),
            "missing_values": ("texts that mean that there is no value", None),
            "separator": ('"csv" only: between two cells', None),
            "image_size": ("images: height and width in pixels to bring them to", [28, 28]),
            "grayscale": ("images: one channel instead of three", None),
            "repository": ('"hub" only: the data set', "ylecun/mnist"),
            "subset": ('"hub" only: its configuration, where it has several', "mnist"),
            "revision": ('"hub" only: a commit, so that the data stay the same', "main"),
            "split": ('"hub" only: the training split', None),
            "test_split": ('"hub" only: the test split, where there is one', "test"),
            "image": ('"hub" only: the column of the images; left out: a table', "image"),
            "feature_map": (
                'a public map of the features: "none", "random-projection", "random-fourier", "dct" (images) or '
                '"scattering" (images; needs dualfed[scattering])',
                None,
            ),
            "features_out": ("how many features the map makes", 64),
            "feature_seed": ("the seed of the map", None),
            "bandwidth": ('"random-fourier" only: distance at which two records stop being alike', None),
            "scattering_scale": ('"scattering" only: averages over squares of 2^scale pixels', None),
            "seed": ("the seed of the split and of synthetic records; left out: the run's seed", 5),
            "validation": ("share of each client's records held out, to evaluate on in place of the test records", 0.2),
        },
    ),
    "partition": (
        "Who holds which record.",
        {
            "scheme": (
                '"iid"; "dirichlet": each class is split by shares drawn from Dirichlet(alpha); "pathological": '
                'classes_per_client classes each; "quantity": sizes drawn from Dirichlet(alpha); "column": data.client',
                None,
            ),
            "clients": ('N; "column": left out, as many as the data name', None),
            "alpha": ('"dirichlet", "quantity": small values give clients of few classes and unequal sizes', None),
            "classes_per_client": ('"pathological" only', None),
            "min_size": ("the fewest training records of any client", None),
            "drop_small": ('"column" only: leave out clients below min_size instead of refusing', None),
        },
    ),
    "problem": (
        "Model, loss and regulariser, and the constants that the sensitivity rests on.",
        {
            "kind": (
                '"softmax", "logistic", "hinge", "least-squares", "module", or that of an installed package',
                None,
            ),
            "regulariser": ('"none", "l2", "l1", "elastic-net", "box" or "ball"', None),
            "weight": ("of l2 (w/2)‖x‖², l1 w‖x‖₁, or the l1 part of elastic-net", None),
            "weight_l2": ("of the l2 part of elastic-net", None),
            "lower": ('"box" only', None),
            "upper": ('"box" only', None),
            "radius": ('"ball" only', None),
            "record_norm": ("a public bound on every record's norm, where the scaling gives none", 1.0),
            "clip": ("clip each record's gradient at this norm, for losses whose bound allows it", 1.0),
            "weights": ('"uniform": every client counts the same; "by-size": in proportion to its records', None),
            "smoothing": ('"hinge" only: width of its rounded corner, in units of the margin', None),
            "model": (
                '"module" only: "mlp", "cnn", or "package.module:factory" that makes a torch.nn.Module of (features, outputs)',
                None,
            ),
            "model_options": (
                '"module" only: further arguments of the model; mlp: hidden, activation; cnn: image, channels, hidden',
                {"hidden": [64]},
            ),
            "options": ("further parameters of a problem from another package, by name", None),
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
                "s: how much of its own model and dual a client keeps; 1 is the method itself, less forgets noise; "
                '"auto" forgets what in its own model is noise',
                None,
            ),
            "increment_clip": (
                "C: clip every round's increment at this norm, which protects a client's whole data set and suits any loss",
                1.0,
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
    "time": (
        "What takes how long and what fails, all drawn by the seed. As it is here nothing takes time.",
        {
            "clock": (
                '"virtual": times are drawn and nothing waits; "real": clients wait. The numbers are the same',
                None,
            ),
            "compute": (
                'seconds of a client\'s round: "none", "constant", "exponential", "lognormal", "pareto" or "trace"',
                None,
            ),
            "mean_s": ("their mean, for a client of speed 1", None),
            "sigma": ('"lognormal" only: deviation of the logarithm', None),
            "shape": ('"pareto" only: the exponent; the nearer to 1, the heavier the tail', None),
            "slow_fraction": ("share of the clients that take slow_factor times as long, always the same ones", None),
            "slow_factor": ("see slow_fraction", None),
            "speed_spread": ("each client's own factor: deviation of its logarithm", None),
            "speeds": ("known relative speeds, one a client; 2 halves the time", [1.0, 2.0]),
            "trace": ('"trace" only: a csv file with the columns client, round or time, seconds', "my/delays.csv"),
            "latency_s": ("seconds of every message, whatever its size", None),
            "bandwidth": ("bytes per second of a link; left out: no limit", 1e6),
            "dropout": ("probability that a client begins a round and never answers; its charge stands", None),
            "online_s": ("churn: mean seconds that a client stays on", 600.0),
            "offline_s": ("churn: mean seconds that it stays off", 60.0),
            "churn_trace": ("churn from a csv file with the columns client, time, online (1 or 0)", "my/churn.csv"),
            "message_drop": ('policy.kind = "lossy" only: probability that a message between neighbours is lost', None),
            "target_accuracy": ("the summary says after how many simulated seconds this was reached", 0.9),
        },
    ),
    "policy": (
        "How a round meets stragglers, and what a client's error means.",
        {
            "kind": (
                'with a server: "wait" for all, "over-select" (K + extra begin, the first K count), "deadline", "async"; over '
                'a graph: "barrier" (the same as wait), "neighbour" (go on when the neighbours\' messages are there), "lossy"',
                None,
            ),
            "extra": ('"over-select" only: how many more than K begin', None),
            "deadline_s": ('"deadline" only: seconds after which a round is closed; a late client was charged', 5.0),
            "buffer": ('"async" only: arrivals that make an update', None),
            "staleness": (
                '"async" only: the most updates since a client\'s start; older work is void, and charged',
                None,
            ),
            "cap": ("the most participations of a client, kept by the ledger; async calibrates noise for it", 20),
            "on_error": (
                'a client that raises: "stop" the run, "skip" it in this round, or "retry" with a new grant',
                None,
            ),
            "retries": ('"retry" only: how often in one round; then the client is skipped', None),
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
            "threads": ("torch threads of each process; more than one helps where cores are idle", None),
            "device": ('"cpu" or "cuda": where methods with a server compute', None),
            "gpus_per_actor": ("GPUs that Ray reserves for each actor, such as 0.5", None),
        },
    ),
}


def write_template(path: Path, method: str = "fedspd-dp") -> None:
    """Write the commented configuration to ``path``, with the parameters of a method.

    Raises:
        InvalidValue: the file is there already, or cannot be written, or there are no words for that method.
    """
    text = template(method)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InvalidValue("FILE", str(path), "is there already; give another name, or remove it first") from None
    except OSError as error:
        raise InvalidValue("FILE", str(path), f"cannot be written: {error.strerror}") from None


def template(method: str = "fedspd-dp") -> str:
    """The commented configuration, as TOML. Raises InvalidValue for a method that it has no words for."""
    from .config import RunConfig

    defaults = RunConfig()
    told_of = {"fedspd-dp": _SECTIONS["method"][1], "spade-dfl": SPADE, **server_words(), **graph_words()}
    if method not in told_of:
        raise InvalidValue("--method", method, f"give one of {', '.join(told_of)}")
    values_of = {"method": _defaults(method), "privacy": _privacy(method)}
    lines = ["# A run of dualfed. Values are the defaults; lines that are commented out show an example.", ""]
    lines += _fields(_HEAD, {name: getattr(defaults, name) for name in _HEAD})
    for section, (purpose, told) in _SECTIONS.items():
        values = values_of.get(section) or getattr(defaults, section).model_dump()
        lines += [
            "",
            f"# {purpose}",
            f"[{section}]",
            *_fields(told_of[method] if section == "method" else told, values),
        ]
    return "\n".join(lines) + "\n"


def _defaults(method: str) -> dict[str, Any]:
    from ..algorithms.registry import method_class, method_table

    chosen = method_class(method)
    values = {"name": method} | {field.name: field.default for field in dataclasses.fields(chosen)}  # type: ignore[arg-type]
    # A default that the method works out itself, such as a falling step size.
    values |= {name: value for name, value in method_table(chosen()).items() if values[name] is None}
    # What a private run cannot do without has no default: a file that runs as it is needs one.
    return values | ({"clip": 1.0} if method == "spade-dfl" or method in NEED_CLIP else {})


def _privacy(method: str) -> dict[str, Any]:
    from ..algorithms.registry import method_class
    from .config import PrivacyConfig

    values = PrivacyConfig().model_dump()
    return values if method_class(method).private else values | {"mode": "none"}


def _fields(told: dict[str, tuple[str, Any]], values: dict[str, Any]) -> list[str]:
    lines = []
    for name, (meaning, example) in told.items():
        given = values[name]
        left_out = given is None or (example is not None and not given)
        line = f"{name} = {_toml(example if left_out else given)}"
        lines += [*(f"# {part}" for part in textwrap.wrap(meaning, _WIDTH)), f"# {line}" if left_out else line]
    return lines


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        table = tomlkit.inline_table()
        table.update(value)
        return table.as_string()
    return str(tomlkit.item(value).as_string())
