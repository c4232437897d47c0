"""The command that only looks: ``dualfed list``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, get_args

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from ..algorithms.method import Method

DATA = {
    "digits": "scikit-learn's 1,797 handwritten digits, 8×8 pixels, 10 classes",
    "breast-cancer": "scikit-learn's 569 tumours, 30 features, 2 classes",
    "synthetic": "Gaussian classes that the seed draws: data.records, features, classes, spread",
    "idx": "a folder in the layout of MNIST and Fashion-MNIST: data.path",
    "npz": "arrays x and y, or x_train, y_train, x_test, y_test: data.path",
    "csv": "a table with a label column, numeric and categorical columns: data.path, data.label",
    "parquet": "the same from a parquet file",
    "image-folder": "train/CLASS/*.png and, if there is one, test/CLASS/*.png below data.path",
    "hub": "a data set of the Hugging Face Hub: data.repository (needs the extra dualfed\\[hub])",
}
PROBLEMS = {
    "softmax": "classes 0 to k−1, multinomial logistic loss",
    "logistic": "two classes, logistic loss",
    "hinge": "two classes, hinge loss with a rounded corner",
    "least-squares": "real targets, squared loss",
    "nonconvex-logistic": "two classes, logistic loss with a smooth non-convex penalty",
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


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for place, column in enumerate(columns):
        table.add_column(column, no_wrap=place == 0)  # a name is there to be copied
    return table
