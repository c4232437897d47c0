"""What was shown of ε before."""

from __future__ import annotations

import numpy as np
from dualfed.privacy.shown import Shown


def test_it_is_remembered_by_delta_and_unit_until_a_void():
    shown = Shown(3)
    shown.at(1e-5)[:] = [1.0, 2.0, 3.0]
    assert shown.at(1e-6).tolist() == shown.at(1e-5, "client").tolist() == [0.0] * 3
    shown.forget(np.array([1]))
    assert shown.at(1e-5).tolist() == [1.0, 0.0, 3.0]


def test_the_delta_not_asked_for_longest_is_forgotten():
    shown = Shown(1)
    for k in range(33):
        shown.at(1e-5)[:] = 1.0
        shown.at(1e-6 / (k + 1))[:] = 2.0
    assert shown.at(1e-5)[0] == 1.0
    assert shown.at(1e-6)[0] == 0.0
