"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .page import Block, Page, Section, Text, picture, table, write_page
from .run import setting_blocks, statement, why_claimed

if TYPE_CHECKING:
    import pandas as pd

    from ..comparison.comparison import Comparison
    from ..study import Study


def comparison_page(found: Comparison, figures: Sequence[Path]) -> Path:
    """Write ``report.html`` into the comparison's folder."""
    from ..comparison.write import differences_shown, methods_shown, tuning_shown

    svg = next(path for path in figures if path.suffix == ".svg")
    sections = [
        Section(
            "Methods",
            [
                table(methods_shown(found)),
                picture(svg, "Score by round, mean and range over seeds; and at the end."),
                *(Text(note) for note in found.notes),
            ],
        ),
        Section("Paired differences", [table(differences_shown(found))]),
    ]
    if len(found.tuning):
        sections.append(Section("Tuning", [table(tuning_shown(found))]))
    sections += study_sections(found.study, "method", found.faults)
    names = ", ".join(found.methods["method"])
    page = Page("Comparison", f"{names}; {found.methods['seeds'].max()} seeds", sections)
    return write_page(page, found.folder / "report.html")


def study_sections(study: Study, by: str, faults: Sequence[str]) -> list[Section]:
    """What any study has to say: ε statements, failures, every run, and settings.

    ``by`` is the label whose first run stands for the others in statements and configuration.
    """
    privacy: list[Block] = []
    settings: list[Block] = []
    seen: set[str] = set()
    for labels, result in study.results():
        name = str(labels.get(by, ", ".join(f"{key} {value}" for key, value in labels.items() if key != "seed")))
        if name in seen:
            continue
        seen.add(name)
        weak = result.summary["status"] == "claimed" or result.summary["mode"] == "none"
        privacy.append(Text(f"{name}: {statement(result)}", "warning" if weak else "statement"))
        if result.summary["status"] == "claimed":
            privacy.append(Text(f"Claimed, because: {why_claimed(result)}"))
        code, environment = setting_blocks(result)
        settings.append(Text(f"Configuration of {name}:"))
        settings.append(code)
        last = environment
    if seen:
        settings.append(last)
    wrong: list[Block] = [Text(each, "warning") for each in faults] or [Text("No run was refused, and none failed.")]
    return [
        Section("Privacy", privacy),
        Section("Failures and refusals", wrong),
        Section("Every run", [table(_shown(study))]),
        Section("Configurations and environment", settings),
    ]


def _shown(study: Study) -> pd.DataFrame:
    from ..comparison.write import epsilon_with_word

    rows: pd.DataFrame = study.rows.drop(columns=["folder", "delta", "account", "epsilon_is"])
    rows["epsilon"] = [epsilon_with_word(row["epsilon"], row["epsilon_is"]) for row in study.rows.to_dict("records")]
    return rows.rename(columns={"epsilon": "ε", "objective": "objective (not private)"})
