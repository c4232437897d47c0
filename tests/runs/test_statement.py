"""Words for ε: rounded up, and never claimed without saying so."""

from __future__ import annotations

import math

import pytest
from dualfed.runs.statement import epsilon_label, epsilon_number, epsilon_text, privacy_sentence, size_sentence


@pytest.mark.parametrize(
    ("epsilon", "text"),
    [
        (8.0, "8.00"),
        (7.9996, "8.00"),
        (8.001, "8.01"),
        (3.2, "3.20"),
        (0.0, "0"),
        (0.01234, "0.0124"),
        (1e-7, "0.000000100"),
        (math.inf, "∞"),
    ],
)
def test_numbers_are_rounded_up(epsilon: float, text: str) -> None:
    assert epsilon_number(epsilon) == text


def test_a_printed_number_is_never_below_the_bound() -> None:
    for k in range(1, 2000):
        epsilon = k * math.pi / 100
        assert float(epsilon_number(epsilon)) >= epsilon - 1e-7


def test_claimed_epsilons_carry_the_word() -> None:
    assert epsilon_text(3.2, "claimed") == "3.20 (claimed)"
    assert epsilon_text(3.2, "guaranteed") == "3.20"
    assert epsilon_text(math.inf, "guaranteed") == "∞ (no noise)"
    assert "claimed" in epsilon_text(math.inf, "claimed")
    assert epsilon_label("claimed") == "ε (claimed)"


def test_sentences() -> None:
    def said(**changed: object) -> str:
        values: dict[str, object] = {
            "status": "guaranteed",
            "unit": "record",
            "account": "pld-by-position",
            "noise": "seeded",
        }
        return privacy_sentence(8.0, 1e-5, **{**values, **changed})  # type: ignore[arg-type]

    assert said() == (
        "guaranteed (8.00, 1e-05)-DP for one record of a client, replace-one, by the PLD-by-position account, "
        "for this mechanism with a secret noise key (this run's key was seeded)"
    )
    assert said(status="claimed").startswith("claimed, not guaranteed: (8.00, 1e-05)-DP")
    assert "seeded" not in said(noise="secret")
    assert privacy_sentence(math.inf, 1e-5, status="guaranteed", unit="record", account="", noise="seeded").startswith(
        "ε = ∞ (no noise)"
    )


def test_few_records_are_named() -> None:
    assert size_sentence(57, 180, "record").startswith("Each client holds 57–180 records;")
    assert size_sentence(57, 57, "record").startswith("Each client holds 57 records;")
    assert size_sentence(57, 180, "client") == ""
