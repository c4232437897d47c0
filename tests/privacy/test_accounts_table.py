"""The table of ``benchmarks/accounts.py``: every account against a value that was computed in another way."""

import importlib.util
import sys
from pathlib import Path

import pytest

PLACE = Path(__file__).parents[2] / "benchmarks" / "accounts.py"


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("accounts_table", PLACE)
    module = sys.modules["accounts_table"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return list(module.rows())


def test_closed_forms_are_met_to_a_millionth(table):
    closed = [row for row in table if row.exact]
    assert len(closed) >= 25
    for row in closed:
        assert row.found == pytest.approx(row.low, rel=1e-6), row


def test_no_account_is_below_a_valid_lower_bound_nor_far_above(table):
    convolved = [row for row in table if not row.exact]
    assert len(convolved) + sum(row.exact for row in table) >= 30
    for row in convolved:
        assert row.low <= row.found <= row.low * (1 + 3e-3), row
        assert row.low < row.high < row.low * (1 + 5e-3), row


def test_every_account_of_the_ledger_is_in_the_table(table):
    assert {row.account for row in table} >= {"unamplified", "pld-by-position", "pure-walk", "single-release", "renyi"}
