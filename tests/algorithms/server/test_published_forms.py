"""Methods against another published form of the same iteration, computed here from that form."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from dualfed.algorithms.consensus_admm import ConsensusADMM
from dualfed.algorithms.problems import make_problem
from dualfed.algorithms.shards import Shards
from dualfed.keys import generator

from .conftest import SIZES, P, play


def _least_squares():
    draw = generator(b"test", "lines")
    rows, targets = draw.standard_normal((sum(SIZES), P)), draw.standard_normal(sum(SIZES))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    return make_problem("least-squares", P, 1, 1.0), Shards.from_flat(rows, targets, offsets), rows, targets, offsets


@pytest.mark.parametrize("rho", [0.1, 0.7])
def test_consensus_admm_is_the_fixed_point_iteration_with_half_steps(rho):
    """Cyffers, Bellet & Basu 2023, "From noisy fixed-point iterations to private ADMM", without noise and clip: with
    u_i = 0 at first, z = mean_i u_i, x_i = prox_{f_i/ρ}(2z − u_i), u_i ← u_i + 2λ(x_i − z), λ = ½. There z comes first in
    a round, so our x_0 after round t is their z of round t + 1."""
    problem, shards, rows, targets, offsets = _least_squares()
    ours = []
    play(ConsensusADMM(rho=rho, tolerance=1e-13, inner_steps=20_000), problem, shards, 25, record=ours)
    u, theirs = np.zeros((len(SIZES), P)), []
    for _ in range(26):
        z = u.mean(axis=0)
        theirs.append(z)
        for i, (first, last) in enumerate(pairwise(offsets)):
            a, m = rows[first:last], last - first
            # f_i is the mean of ½(a·x − b)².
            x = np.linalg.solve(a.T @ a / m + rho * np.eye(P), a.T @ targets[first:last] / m + rho * (2 * z - u[i]))
            u[i] += x - z
    np.testing.assert_allclose(np.array([x0.numpy() for x0 in ours]), np.array(theirs[1:]), rtol=1e-8, atol=1e-10)
    assert np.linalg.norm(theirs[-1] - theirs[1]) > 1e-3, "the iteration moved"
