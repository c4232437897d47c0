"""Without noise and with full batches the fixed points are the optima of (P1), whatever Q, K and the split of the records."""

from __future__ import annotations

import numpy as np
import pytest
from dualfed.runs.config import parse
from dualfed.runs.data import load
from dualfed.runs.partition import partition
from dualfed.runs.simulate import simulate
from sklearn.linear_model import LogisticRegression

WEIGHT = 0.02


def setting(regulariser, participants, steps):
    return parse(
        {
            "seed": 1,
            "engine": "inline",
            "evaluate_every": 500,
            "checkpoint_every": 10_000,
            "data": {"name": "synthetic", "records": 300, "features": 6, "classes": 2},
            "partition": {"scheme": "dirichlet", "clients": 6, "alpha": 0.3, "min_size": 12},
            "problem": {
                "kind": "logistic",
                "regulariser": regulariser,
                "weight": WEIGHT if regulariser == "l2" else 0.02,
            },
            "method": {
                "name": "fedspd-dp",
                "rounds": 2000,
                "participants": participants,
                "local_steps": steps,
                "batches": "full",
                "rho": 0.05,
                "gamma": 0.3,
            },
            "privacy": {"mode": "none"},
        }
    )


def optimum(config):
    """H* by scikit-learn: the same records, each weighted by 1/(N·m_i)."""
    data = load(config.data, config.seed)
    members = partition(data.train_labels, config.partition, config.seed)
    weights = np.empty(len(data.train_labels))
    for rows in members:
        weights[rows] = 1 / (len(members) * len(rows))
    penalty, weight = config.problem.regulariser, config.problem.weight
    solver = LogisticRegression(
        C=1 / weight,
        l1_ratio=0.0 if penalty == "l2" else 1.0,
        solver="lbfgs" if penalty == "l2" else "saga",
        fit_intercept=False,
        tol=1e-12,
        max_iter=50_000,
        random_state=0,
    )
    solver.fit(data.train_features, data.train_labels, sample_weight=weights)
    x = solver.coef_[0]
    margins = (2 * data.train_labels - 1) * (data.train_features @ x)
    norm = 0.5 * x @ x if penalty == "l2" else np.abs(x).sum()
    return float(weights @ np.logaddexp(0, -margins) + weight * norm)


@pytest.mark.parametrize(("regulariser", "participants", "steps"), [("l2", 3, 4), ("l2", 6, 1), ("l1", 3, 4)])
def test_reaches_the_optimum_that_scikit_learn_finds(regulariser, participants, steps):
    config = setting(regulariser, participants, steps)
    result = simulate(config, keep=False)
    best = optimum(config)
    reached = result.diagnostics["objective"].iloc[-1]
    assert reached >= best - 1e-9
    assert reached - best < 1e-6
    assert result.diagnostics["consensus"].iloc[-1] < 1e-2
