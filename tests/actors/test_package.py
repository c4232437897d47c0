"""The package as a folder that travels."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import dualfed
from dualfed.actors.package import stage


def test_a_staged_package_is_whole_and_nothing_else(tmp_path):
    made = stage(tmp_path)
    assert made == tmp_path / "dualfed"
    names = {path.name for path in made.iterdir()}
    assert {"__init__.py", "actors", "algorithms", "privacy", "runs", "topology"} <= names
    assert not names & {"tests", "docs", "build", "benchmarks", ".git", ".venv"}
    assert sum(path.stat().st_size for path in made.rglob("*") if path.is_file()) < 20 << 20
    assert not list(made.rglob("*.pyc"))
    code = "import dualfed; from dualfed.runs.presets import preset_names; print(dualfed.__file__, len(preset_names()))"
    said = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    path, presets = said.rsplit(" ", 1)
    assert Path(path) == made / "__init__.py"
    assert int(presets) > 0
    assert Path(dualfed.__file__).parent != made
