"""What a privacy loss is called in words. Everything that prints an ε takes its words from here.

An ε is an upper bound, so it is rounded up. The ε of a method whose bound is not proven never appears without the word
``claimed``.
"""

from __future__ import annotations

import math

_ACCOUNTS = {
    "pld-by-position": "PLD-by-position",
    "rdp-without-replacement": "RDP-without-replacement",
    "unamplified": "unamplified Gaussian",
    "zcdp": "zCDP",
    "renyi": "Rényi moments",
    "basic": "sum of ε",
    "pure-walk": "pure, exact",
    "single-release": "one release, exact",
}
_UNITS = {"record": "one record of a client", "client": "a client's whole data set"}


def epsilon_number(epsilon: float, least: int = 2) -> str:
    """ε alone, rounded up to ``least`` decimals, or to three significant digits where it is small."""
    if math.isinf(epsilon):
        return "∞"
    if epsilon <= 0:
        return "0"
    decimals = least if epsilon >= 0.1 else min(2 - math.floor(math.log10(epsilon)), 300)
    scale = 10.0**decimals
    # A bound that exceeds the printed digit by rounding noise alone is not a larger bound.
    return f"{math.ceil(epsilon * scale - 1e-6) / scale:.{decimals}f}"


def epsilon_text(epsilon: float, status: str, least: int = 2) -> str:
    """ε for a table, with ``least`` decimals: ``3.20``, ``3.20 (claimed)``, ``∞ (no noise)``."""
    remarks = ["claimed"] if status == "claimed" else []
    if math.isinf(epsilon):
        remarks.append("no noise")
    return epsilon_number(epsilon, least) + (f" ({', '.join(remarks)})" if remarks else "")


def epsilon_label(status: str) -> str:
    """ε for the label of an axis or the head of a column."""
    return "ε (claimed)" if status == "claimed" else "ε"


def account_name(account: str) -> str:
    """The name of an account for a sentence."""
    return _ACCOUNTS.get(account, account)


def unit_name(unit: str) -> str:
    """What two neighbouring data sets differ in."""
    return _UNITS.get(unit, unit)


def privacy_sentence(epsilon: float, delta: float, *, status: str, unit: str, account: str, noise: str) -> str:
    """What a run's largest ε means, with everything that it rests on."""
    if math.isinf(epsilon):
        text = "ε = ∞ (no noise): the releases of this run protect nobody"
        return f"claimed, not guaranteed: {text}" if status == "claimed" else text
    bound = (
        f"({epsilon_number(epsilon)}, {delta:g})-DP for {unit_name(unit)}, replace-one, "
        f"by the {account_name(account)} account, for this mechanism with a secret noise key"
    )
    key = "this run's key was seeded" if noise == "seeded" else "this run's key was drawn from the operating system"
    begin = "claimed, not guaranteed:" if status == "claimed" else "guaranteed"
    return f"{begin} {bound} ({key})"


def size_sentence(least: int, most: int, unit: str) -> str:
    """What few records mean for a bound about one of them; empty where it does not apply."""
    if unit != "record":
        return ""
    held = f"{least}" if least == most else f"{least}–{most}"
    return (
        f"Each client holds {held} records; a record-level guarantee this strong is paid by accuracy, "
        "and more records per client cost less."
    )


def seconds_text(seconds: float) -> str:
    """A duration in words: 12.3 s, 4 min 10 s, 3 h 20 min."""
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{int(seconds // 60)} min {seconds % 60:.0f} s"
    return f"{int(seconds // 3600)} h {seconds % 3600 / 60:.0f} min"
