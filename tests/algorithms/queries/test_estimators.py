"""What the local stage promises beside its equations."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from dualfed.algorithms.problems import LogisticProblem
from dualfed.algorithms.queries import local_stage
from dualfed.algorithms.regularisers import NoRegulariser
from dualfed.errors import InvalidValue

from . import cases

ESTIMATORS = ["paper", "baseline", "two-point", "gradient"]


@pytest.mark.parametrize("direction", ["rademacher", "gaussian", "sphere"])
@pytest.mark.parametrize("estimator", ["paper", "two-point", "baseline"])
def test_mean_of_the_estimate_is_mu_times_the_gradient(estimator, direction):
    # One step from the same point under many keys: the mean increment is −η μ ∇f + O(μ³).
    n, mu = 4000, 0.02
    problem, shards, x0, drift = cases.cohort("softmax", (6,), p=4)
    slots = torch.zeros(n, dtype=torch.int64)
    found = local_stage(
        problem,
        shards,
        slots,
        x0.expand(n, -1),
        drift.expand(n, -1) * 0,
        estimator=estimator,
        direction=direction,
        eta=1.0,
        mu=mu,
        steps=np.ones(n, np.int64),
        batch=np.full(n, 2),
        keys=cases.keys(n),
    )
    gradient = problem.full_gradient(x0, shards, slots[:1])[0]
    error = found.delta.mean(0) + mu * gradient
    spread = found.delta.std(0) / np.sqrt(n)
    assert bool((error.abs() < 4.5 * spread + 5 * mu**3).all())
    if estimator != "paper":  # whose spread is that of f, not of μ‖∇f‖
        assert float(error.norm()) < 0.2 * mu * float(gradient.norm())


@pytest.mark.parametrize("kind", ["softmax", "logistic", "least-squares"])
def test_gradients_with_memory_come_to_rest(kind):
    # Labels are drawn blindly, so that classes overlap and a minimiser exists. Steps are 1/(3L) and less.
    problem, shards, x0, drift = cases.cohort(kind, (60,), p=3, seed=1)
    x0, drift = 0 * x0, 0 * drift
    options = {"estimator": "gradient", "eta": 3.0 / problem.smoothness, "mu": 0.1, "steps": 1000}
    for round in range(60):
        found = cases.stage((problem, shards, x0, drift), **options, keys=cases.keys(1, round))
        x0 = x0 + found.delta
    assert float(problem.full_gradient(x0, shards, torch.tensor([0])).norm()) < 1e-13
    assert float(found.delta.norm()) < 1e-12


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_client_does_not_depend_on_its_company(estimator):
    case = cases.cohort("softmax", (9, 5, 12, 4))
    options = {"estimator": estimator, "steps": (7, 3, 4, 5), "batch": (1, 2, 3, 4), "query_noise": 0.1}
    together = cases.stage(case, **options)
    for slots in ([2], [3, 0], [1, 2, 3]):
        apart = cases.stage(case, slots=slots, **options)
        assert torch.equal(apart.delta, together.delta[slots])
        assert apart.level.tolist() == together.level[slots].tolist()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_queries_and_level(estimator):
    case = cases.cohort("logistic", (9, 5))
    found = cases.stage(case, estimator=estimator, steps=(7, 3), batch=(1, 2), chunk=2)
    assert found.components.tolist() == [5, 3]
    assert found.queries.tolist() == [each * (2 if estimator == "two-point" else 1) for each in (12, 9)]
    if estimator in ("baseline", "gradient"):
        np.testing.assert_allclose(found.level, case[0].losses(case[2], case[1], torch.tensor([0, 1])), rtol=1e-12)


def test_nobody_to_ask():
    assert cases.stage(cases.cohort("softmax", (9, 5)), slots=np.zeros(0, np.int64)).delta.shape == (0, 21)


def test_rounds_draw_anew():
    case = cases.cohort("softmax", (9, 5))
    first, second = (cases.stage(case, keys=cases.keys(2, round)).delta for round in (1, 2))
    assert not torch.isclose(first, second).any(dim=1).all()


@pytest.mark.parametrize("kind", ["logistic", "least-squares"])
def test_clipped_gradients_are_those_of_the_problem(kind):
    problem, *rest = cases.cohort(kind, (9, 5))
    clipped = type(problem)(problem.n_features, 1, 1.0, NoRegulariser(), 0.3)
    options = {"estimator": "gradient", "steps": 1, "batch": (9, 5), "eta": 1.0, "mu": 1.0}
    found = cases.stage((clipped, *rest), **options)
    expected = -clipped.full_gradient(rest[1], rest[0], torch.tensor([0, 1]))
    np.testing.assert_allclose(found.delta, expected, rtol=1e-9)
    assert not torch.allclose(found.delta, cases.stage((problem, *rest), **options).delta)


MEMORY = """
import resource
from {package} import cases
small = cases.cohort("softmax", (4,), p=785, classes=10)
cases.stage(small, steps=1)
case = cases.cohort("softmax", (600, 600), p=785, classes=10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = cases.stage(case, steps=50, batch=1)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, found.queries.sum())
"""


def test_paper_needs_no_table_of_directions(tmp_path):
    # In a process of its own: the peak of this one may be anything. H·d numbers of one client would be 37,000 KiB.
    here = Path(__file__).parent
    code = MEMORY.format(package=here.name)
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=here.parent, capture_output=True, text=True)
    grown, queries = done.stdout.split()
    assert int(queries) == 1300
    assert int(grown) < 6000


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("method.estimator", {"estimator": "spsa"}),
        ("method.direction", {"direction": "cauchy"}),
        ("method.eta", {"eta": 0.0}),
        ("method.mu", {"mu": float("inf")}),
        ("method.chunk", {"chunk": 0}),
        ("method.query_noise", {"query_noise": -1.0}),
        ("method.local_steps", {"steps": -1}),
        ("method.batch_size", {"batch": 0}),
        ("method.batch_size", {"batch": 6}),
        ("method.batch_size", {"batch": 4, "chunk": 2}),
    ],
)
def test_refusals_name_the_field(field, given):
    with pytest.raises(InvalidValue) as caught:
        cases.stage(cases.cohort("logistic", (9, 5)), **given)
    assert caught.value.field == field


def test_divergence_shows_and_stays_with_its_client():
    problem, shards, x0, drift = cases.cohort("least-squares", (9, 5))
    bad = x0.clone()
    bad[0, 0] = float("nan")
    found, clean = (cases.stage((problem, shards, x, drift), batch=2) for x in (bad, x0))
    assert torch.isnan(found.delta[0]).all()
    assert torch.equal(found.delta[1], clean.delta[1])


def test_runs_where_no_cache_can_be_written(tmp_path):
    code = (
        "from numba.core import caching\n"
        "caching.CompileResultCacheImpl._locator_classes = []\n"
        "import numpy as np\n"
        "from dualfed.algorithms.queries.draws import batches\n"
        "assert sorted(batches(np.ones(2, np.uint64), 3, 1, 3)[0]) == [0, 1, 2]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path)


def test_a_subclass_is_not_taken_for_its_parent():
    class Doubled(LogisticProblem):
        def record_losses(self, scores, labels):
            return 2 * super().record_losses(scores, labels)

    problem, *rest = cases.cohort("logistic", (9, 5))
    double = Doubled(problem.n_features, 1, 1.0)
    plain, twice = (cases.stage((each, *rest), estimator="baseline").level for each in (problem, double))
    np.testing.assert_allclose(twice, 2 * plain, rtol=1e-12)
