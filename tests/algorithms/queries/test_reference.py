"""The compiled and the general stage against (Z1)–(Z6) as written."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.algorithms.problems import SoftmaxProblem

from . import cases, reference

SIZES, STEPS, BATCH = (9, 5, 12, 4), (7, 0, 4, 11), (1, 2, 3, 4)
WEIGHTS = np.array([1.0, 0.5, 1.5, 1.0])
ESTIMATORS = ["paper", "baseline", "two-point", "gradient"]
DIRECTIONS = ["rademacher", "gaussian", "sphere"]


class SoftmaxByValues(SoftmaxProblem):
    """The same loss under another type, which the compiled stage does not take."""


def expected(case, kind, **options):
    problem, shards, x0, drift = case
    out = []
    for i in range(shards.n_clients):
        features, labels = (each.numpy() for each in shards.client(i))
        options_i = {name: value[i] for name, value in options.items() if name in ("steps", "batch", "keys", "weights")}
        out.append(
            reference.local_stage(
                reference.losses(kind),
                features,
                labels,
                problem.n_outputs,
                x0[i].numpy(),
                drift[i].numpy(),
                estimator=options["estimator"],
                direction_kind=options["direction"],
                eta=options["eta"],
                mu=options["mu"],
                steps=options_i["steps"],
                batch=options_i["batch"],
                chunk=options["chunk"],
                noise=options["query_noise"],
                key=options_i["keys"],
                weight=options_i["weights"],
            )
        )
    return np.array([delta for delta, _ in out]), np.array([queries for _, queries in out])


def check(case, kind, rtol=1e-9, **options):
    options = {"eta": 0.05, "mu": 0.1, "keys": cases.keys(len(SIZES)), "weights": WEIGHTS, **options}
    found = cases.stage(case, **options)
    delta, queries = expected(case, kind, **options)
    scale = np.abs(delta).max(1, keepdims=True)
    np.testing.assert_allclose(
        found.delta.numpy() / np.maximum(scale, 1e-300), delta / np.maximum(scale, 1e-300), atol=rtol, rtol=0
    )
    assert found.queries.tolist() == queries.tolist()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kind", ["softmax", "logistic", "least-squares"])
def test_unequal_sizes_steps_and_batches(kind, estimator, direction):
    case = cases.cohort(kind, SIZES)
    common = {"estimator": estimator, "direction": direction, "steps": STEPS, "query_noise": 0.3}
    check(case, kind, chunk=1, batch=BATCH, **common)
    check(case, kind, chunk=2, batch=(1, 2, 1, 2), **common)


@pytest.mark.parametrize("estimator", ["paper", "baseline"])
def test_rows_cut_into_parts_and_many_classes(estimator):
    for p, classes in ((1100, 3), (5, 40)):
        case = cases.cohort("softmax", SIZES, p=p, classes=classes)
        common = {"estimator": estimator, "direction": "rademacher", "chunk": 1, "query_noise": 0.0}
        check(case, "softmax", steps=(2, 1, 0, 2), batch=BATCH, **common)


def test_one_record_and_whole_batch():
    case = cases.cohort("softmax", (1, 1, 3, 4))
    for estimator in ESTIMATORS:
        common = {"estimator": estimator, "direction": "rademacher", "query_noise": 0.1}
        check(case, "softmax", steps=(5, 2, 3, 3), batch=(1, 1, 3, 4), chunk=1, **common)
        check(case, "softmax", steps=(5, 2, 3, 3), batch=(1, 1, 1, 1), chunk=50, **common)


@pytest.mark.parametrize("estimator", ["baseline", "gradient"])
def test_single_precision_stays_near(estimator):
    case = cases.cohort("softmax", SIZES, p=40)
    single = (case[0], *(each for each in cases.cohort("softmax", SIZES, p=40, dtype=torch.float32)[1:]))
    options = {"estimator": estimator, "steps": STEPS, "batch": BATCH, "eta": 0.05}
    wide, narrow = cases.stage(case, **options), cases.stage(single, **options)
    assert narrow.delta.dtype == torch.float32
    np.testing.assert_allclose(narrow.delta, wide.delta, atol=2e-5 * float(wide.delta.abs().max()))


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_arbitrary_models_see_the_same_draws(estimator, direction):
    case = cases.cohort("softmax", SIZES)
    general = (SoftmaxByValues(7, 3, 1.0), *case[1:])
    for chunk, batch in ((1, BATCH), (2, (1, 2, 1, 2))):
        options = {"estimator": estimator, "direction": direction, "steps": STEPS, "batch": batch, "chunk": chunk}
        options |= {"query_noise": 0.2, "weights": WEIGHTS}
        fast, slow = cases.stage(case, **options), cases.stage(general, **options)
        np.testing.assert_allclose(slow.delta, fast.delta, rtol=1e-8, atol=1e-12)
        np.testing.assert_allclose(slow.level, fast.level, rtol=1e-10)
        assert slow.queries.tolist() == fast.queries.tolist()
