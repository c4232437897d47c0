"""Prints pins of everything that dualfed and its tests need, as installed here."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement


def closure(root: str) -> dict[str, str]:
    """Versions of all packages that ``root`` needs, extras of the root included."""
    found: dict[str, str] = {}
    waiting = [(root, {"dev"})]
    while waiting:
        name, extras = waiting.pop()
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found and not extras:
            continue
        found[key] = installed.version.split("+")[0]
        for text in installed.requires or []:
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
                waiting.append((needed.name, needed.extras))
    found.pop(root)
    return found


if __name__ == "__main__":
    print("# Versions that the tests ran with. Written by `make pins`.")
    for name, version in sorted(closure("dualfed").items()):
        print(f"{name}=={version}")
