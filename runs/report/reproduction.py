"""The page of a reproduction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .comparison import study_sections
from .page import Block, Page, Section, Text, picture, table, write_page

if TYPE_CHECKING:
    from ..reproductions.framework import Conclusion, Reproduction
    from ..study import Study


def reproduction_page(
    reproduction: Reproduction, scale: str, study: Study, conclusion: Conclusion, figures: Sequence[Path], out: Path
) -> Path:
    """Write ``OUT/report.html``."""
    claims: list[Block] = [
        Text(claim.sentence(), "warning" if claim.holds is False else "statement") for claim in conclusion.claims
    ]
    svg = next(path for path in figures if path.suffix == ".svg")
    sections = [
        Section(
            "What the paper claims, and what came out here", [*claims, *(Text(each) for each in conclusion.remarks)]
        ),
        Section("Figure", [picture(svg, f"{reproduction.title} ({reproduction.source}).")]),
        Section("Table", [table(conclusion.table)]),
        *study_sections(study, "", []),
    ]
    subtitle = f"{reproduction.source}; scale {scale}, {len(study.wanted)} runs"
    return write_page(Page(f"{reproduction.name}: {reproduction.title}", subtitle, sections), out / "report.html")
