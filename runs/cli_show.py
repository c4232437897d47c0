"""The commands that only look: ``dualfed list`` and ``dualfed ledger show``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
from rich.console import Console
from rich.table import Table

from ..errors import InvalidValue
from .statement import account_name, epsilon_text, unit_name

if TYPE_CHECKING:
    from ..algorithms.method import Method
    from ..privacy.accountants import Epsilon

DATA = {
    "digits": "scikit-learn's 1,797 handwritten digits, 8×8 pixels, 10 classes",
    "breast-cancer": "scikit-learn's 569 tumours, 30 features, 2 classes",
    "synthetic": "Gaussian classes that the seed draws: data.records, features, classes, spread",
    "idx": "a folder in the layout of MNIST and Fashion-MNIST: data.path",
    "npz": "arrays x and y, or x_train, y_train, x_test, y_test: data.path",
    "csv": "a table with a label column, numeric and categorical columns: data.path, data.label",
    "parquet": "the same from a parquet file",
    "image-folder": "train/CLASS/*.png and, if there is one, test/CLASS/*.png below data.path",
    "hub": "a data set of the Hugging Face Hub: data.repository (needs the extra dualfed[hub])",
}
PROBLEMS = {
    "softmax": "classes 0 to k−1, multinomial logistic loss",
    "logistic": "two classes, logistic loss",
    "hinge": "two classes, hinge loss with a rounded corner",
    "least-squares": "real targets, squared loss",
    "module": "any torch.nn.Module: problem.model",
}


def show_list() -> None:
    """Print methods, presets, problems and data sets."""
    from ..algorithms.registry import method_class, method_names
    from .presets import preset_names, preset_purpose

    console = Console()
    methods = _table("Methods", "name", "family", "unit", "ε is", "source")
    for name in method_names():
        method = method_class(name)
        unit = str(method().unit) if method.private else "–"
        methods.add_row(name, method.family, unit, _statuses(method), method.source)
    presets = _table("Presets", "name", "what it is for")
    for name in preset_names():
        presets.add_row(name, preset_purpose(name))
    problems = _table("Problems", "problem.kind", "what it is")
    for name, words in PROBLEMS.items():
        problems.add_row(name, words)
    data = _table("Data sets", "data.name", "what it is")
    for name, words in DATA.items():
        data.add_row(name, words)
    for table in (methods, presets, problems, data):
        console.print(table)


def _statuses(method: type[Method]) -> str:
    """``guaranteed`` or ``claimed``, by the states that the method can be run in; ∞ for a reference without noise."""
    import dataclasses
    from typing import get_type_hints

    if not method.private:
        return "∞ (no noise)"
    if "state" not in {field.name for field in dataclasses.fields(method)}:  # type: ignore[arg-type]
        return str(method().status)
    factory: Callable[..., Method] = method
    states = get_args(get_type_hints(method)["state"])
    return ", ".join(f"{factory(state=state).status} (state = {state})" for state in states)


def show_ledger(folder: Path, client: int | None, delta: float | None) -> None:
    """Print what the clients of a run have spent, or all accounts of one of them."""
    from ..privacy.accountants import Accountant, check_delta
    from ..privacy.ledger import Ledger
    from .folder import existing_folder

    journal = existing_folder(folder) / "ledger.sqlite"
    if not journal.is_file():
        raise InvalidValue("RUN", str(folder), "has no ledger.sqlite; nothing was charged there")
    ledger = Ledger.open_readonly(journal)
    try:
        if client is not None and not 0 <= client < ledger.n_clients:
            raise InvalidValue("--client", client, f"clients are numbered 0 to {ledger.n_clients - 1}")
        at = ledger.delta if delta is None else check_delta(delta, "--delta")
        # A budget was given at the run's own δ; at another it is not comparable.
        budgets = ["–" if at != ledger.delta or np.isinf(b) else f"{b:g}" for b in ledger.budgets]
        if client is None:
            table = _all_clients(ledger.epsilon(delta=at), ledger.participations, budgets, at)
        else:
            every = Accountant().epsilon(ledger.account(client), at)  # the ledger's own leaves out the slow ones
            table = _one_client(client, every, int(ledger.participations[client]), budgets[client], at)
        Console().print(table)
    finally:
        ledger.close()


def _all_clients(found: list[Epsilon], releases: Any, budgets: list[str], delta: float) -> Table:
    table = _table(
        f"Privacy loss per client, {_neighbours(found)}", "client", "releases", "ε", "budget", "δ", "account", "status"
    )
    for client, spent in enumerate(found):
        table.add_row(
            str(client),
            str(int(releases[client])),
            epsilon_text(spent.epsilon, spent.status),
            _claimed(budgets[client], spent.status),
            f"{delta:g}",
            account_name(spent.account),
            spent.status,
        )
    return table


def _one_client(client: int, spent: Epsilon, releases: int, budget: str, delta: float) -> Table:
    title = f"Client {client}: {releases} releases, budget {_claimed(budget, spent.status)}, {_neighbours([spent])}"
    table = _table(title, "account", "ε", "δ", "status", "reported")
    for name, epsilon in sorted({spent.account: spent.epsilon, **spent.alternatives}.items(), key=lambda item: item[1]):
        reported = "yes" if name == spent.account else ""
        table.add_row(account_name(name), epsilon_text(epsilon, spent.status, 5), f"{delta:g}", spent.status, reported)
    return table


def _claimed(budget: str, status: str) -> str:
    return f"{budget} (claimed)" if status == "claimed" and budget != "–" else budget


def _neighbours(found: list[Epsilon]) -> str:
    return f"for {unit_name(found[0].unit)}, replace-one" if found else "replace-one"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in ("client", "releases", "ε", "budget", "δ") else "left")
    return table
