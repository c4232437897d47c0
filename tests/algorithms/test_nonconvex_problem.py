"""The non-convex logistic loss: its gradient, constants, values, and that it is not convex."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.algorithms.problems import LogisticProblem, NonconvexLogisticProblem, make_problem
from dualfed.algorithms.queries import values_of
from dualfed.algorithms.shards import Shards
from dualfed.errors import InvalidValue

BEND = 0.7


def world(p=4, sizes=(5, 3)):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((sum(sizes), p))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    shards = Shards.from_flat(features, rng.integers(0, 2, sum(sizes)), np.cumsum([0, *sizes]))
    x = torch.from_numpy(rng.standard_normal((len(sizes), p)))
    return make_problem("nonconvex-logistic", p, 1, 1.0, options={"bend": BEND}), shards, x


def test_values_are_the_logistic_loss_and_the_penalty():
    problem, shards, x = world()
    slots = torch.arange(2)
    plain = LogisticProblem(4, 1, 1.0).losses(x, shards, slots)
    penalty = BEND * (x**2 / (1 + x**2)).sum(1)
    torch.testing.assert_close(problem.losses(x, shards, slots), plain + penalty)
    for client in range(2):
        features, labels = shards.client(client)
        value = values_of(problem)(x[client : client + 1], features[None], labels[None])
        torch.testing.assert_close(value[0], plain[client] + penalty[client])
        score = problem.score(x[client], features, labels)
        assert score["loss"] == pytest.approx(float(value[0]))
        torch.testing.assert_close(problem.client_losses(x[client], shards)[client], value[0])


def test_the_gradient_is_that_of_the_losses():
    problem, shards, x = world()
    slots, step = torch.arange(2), 1e-6
    gradient = problem.full_gradient(x, shards, slots)
    for j in range(4):
        e = step * torch.eye(4, dtype=x.dtype)[j]
        difference = (problem.losses(x + e, shards, slots) - problem.losses(x - e, shards, slots)) / (2 * step)
        torch.testing.assert_close(gradient[:, j], difference, rtol=1e-6, atol=1e-8)


def test_its_constants_hold_and_it_is_not_convex():
    problem, shards, _ = world()
    rng = np.random.default_rng(1)
    slots, curvatures = torch.arange(2), []
    for _ in range(300):
        x = torch.from_numpy(2 * rng.standard_normal((2, 4)))
        gradient = problem.full_gradient(x, shards, slots)
        assert bool((gradient.norm(dim=1) <= problem.gradient_bound).all())
        d = torch.from_numpy(1e-4 * rng.standard_normal((2, 4)))
        change = problem.full_gradient(x + d, shards, slots) - gradient
        assert bool((change.norm(dim=1) <= problem.smoothness * d.norm(dim=1) * (1 + 1e-6)).all())
        curvatures += ((change * d).sum(1) / d.square().sum(1)).tolist()
    assert min(curvatures) < -0.05
    assert not problem.convex_smooth


def test_what_it_refuses():
    with pytest.raises(InvalidValue, match=r"problem\.bend"):
        NonconvexLogisticProblem(3, 1, 1.0, bend=-1.0)
    with pytest.raises(InvalidValue, match=r"problem\.clip"):
        NonconvexLogisticProblem(3, 1, 1.0, clip=1.0)
