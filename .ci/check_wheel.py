"""Checks that a wheel holds exactly the package: its modules, its data files and its license."""

from __future__ import annotations

import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def expected() -> set[str]:
    """The files that belong into the wheel, apart from its dist-info."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    wanted = {"dualfed/py.typed"}
    for package in settings["packages"]:
        folder = ROOT.joinpath(*package.split(".")[1:])
        patterns = ["*.py", *settings["package-data"].get(package, [])]
        wanted |= {f"{package.replace('.', '/')}/{path.name}" for pattern in patterns for path in folder.glob(pattern)}
    return wanted


def unlisted() -> set[str]:
    """Folders with modules inside the package's folders that pyproject.toml does not list as packages."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = set(settings["packages"])
    tops = {package.split(".")[1] for package in listed if "." in package}
    found = {
        ".".join(["dualfed", *path.parent.relative_to(ROOT).parts])
        for top in tops
        for path in (ROOT / top).rglob("*.py")
    }
    return found - listed


def main(path: str) -> int:
    """0 if the wheel at ``path`` is as it should be; else says what is wrong."""
    with zipfile.ZipFile(path) as wheel:
        names = set(wheel.namelist())
        broken = wheel.testzip()
    info = {name for name in names if name.split("/")[0].endswith(".dist-info")}
    wanted = expected()
    faults = [f"lacks {name}" for name in sorted(wanted - names)]
    faults += [f"should not hold {name}" for name in sorted(names - info - wanted)]
    faults += [f"lacks the package {name}: list it in pyproject.toml" for name in sorted(unlisted())]
    faults += [] if any(name.endswith("/licenses/LICENSE") for name in info) else ["lacks LICENSE"]
    faults += [] if any(name.endswith("/entry_points.txt") for name in info) else ["lacks the command dualfed"]
    faults += [] if broken is None else [f"is damaged at {broken}"]
    for fault in faults:
        print(f"{Path(path).name} {fault}", file=sys.stderr)
    if not faults:
        print(f"{Path(path).name}: {len(wanted)} files, as it should be")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
