"""The smoothed hinge: gradients against autograd, constants against what they bound, its limit against the hinge itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from dualfed.algorithms.problems import HingeProblem, make_problem, problem_class
from dualfed.algorithms.queries.estimators import values_of
from dualfed.algorithms.shards import Shards
from dualfed.errors import InvalidValue

P, NORM = 5, 1.4
PROBLEMS = {
    "hinge": HingeProblem(P, 1, NORM),
    "wide": HingeProblem(P, 1, NORM, smoothing=2.0),
    "clip": HingeProblem(P, 1, NORM, clip=0.5),
}
every = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS.keys())


def records(seed, clients=3, n=6, size=2.0):
    g = torch.Generator().manual_seed(seed)
    features = torch.randn(clients, n, P, generator=g, dtype=torch.float64)
    features *= NORM * torch.rand(clients, n, 1, generator=g, dtype=torch.float64) / features.norm(dim=-1, keepdim=True)
    labels = torch.randint(0, 2, (clients, n), generator=g)
    return size * torch.randn(clients, P, generator=g, dtype=torch.float64), features, labels


def record_loss(problem, x, a, b):
    u, w = (2 * b - 1) * (x @ a), problem.smoothing
    zero = 0 * u
    return torch.where(u >= 1, zero, torch.where(u <= 1 - w, 1 - u - w / 2, (1 - u) ** 2 / (2 * w)))


def gradient(problem, x, features, labels):
    out = torch.zeros_like(x)
    problem.add_gradient(out, x, features, labels)
    return out


@every
def test_gradient_and_losses_are_those_of_each_record(problem):
    x, features, labels = records(1)
    expected = torch.zeros_like(x)
    for c in range(3):
        for a, b in zip(features[c], labels[c]):
            point = x[c].clone().requires_grad_()
            (g,) = torch.autograd.grad(record_loss(problem, point, a, b), point)
            norm = float(g.norm())
            expected[c] += g / 6 if problem.clip is None or norm <= problem.clip else g * problem.clip / norm / 6
    torch.testing.assert_close(gradient(problem, x, features, labels), expected)
    shards = Shards.from_flat(features.flatten(0, 1).numpy(), labels.flatten().numpy(), np.array([0, 6, 12, 18]))
    losses = problem.losses(x, shards, torch.arange(3))
    for c in range(3):
        own = torch.stack([record_loss(problem, x[c], a, b) for a, b in zip(features[c], labels[c])]).mean()
        torch.testing.assert_close(losses[c], own)
    torch.testing.assert_close(problem.client_losses(x[0], shards)[0], losses[0])
    torch.testing.assert_close(values_of(problem)(x, features, labels), losses)


@every
@pytest.mark.parametrize("seed", range(8))
def test_g_and_l_hold(problem, seed):
    """‖∇‖ ≤ G and co-coercivity, which holds for convex L-smooth losses only, clipped too."""
    x, features, labels = records(seed, clients=20, n=1, size=5.0)
    y = x + records(seed + 50, clients=20)[0] * 10.0 ** -(seed % 4)
    at_x, at_y = gradient(problem, x, features, labels), gradient(problem, y, features, labels)
    change = at_x - at_y
    assert float(at_x.norm(dim=1).max()) <= problem.gradient_bound * (1 + 1e-12)
    assert problem.convex_smooth
    assert bool((change.square().sum(1) <= problem.smoothness * (change * (x - y)).sum(1) + 1e-10).all())


def test_constants_are_reached():
    problem = PROBLEMS["hinge"]
    a = torch.zeros(1, 1, P, dtype=torch.float64)
    a[..., 2] = NORM
    far, labels = torch.zeros(1, P, dtype=torch.float64), torch.tensor([[1]])
    far[0, 2] = -10
    assert float(gradient(problem, far, a, labels).norm()) == pytest.approx(problem.gradient_bound) == NORM
    inside = torch.zeros(1, P, dtype=torch.float64)
    inside[0, 2] = 0.75 / NORM  # u = ¾, the middle of the rounded part
    moved = inside.clone()
    moved[0, 2] += 0.01
    change = gradient(problem, moved, a, labels) - gradient(problem, inside, a, labels)
    assert float(change.norm()) / 0.01 == pytest.approx(problem.smoothness)
    assert problem.smoothness == pytest.approx(NORM**2 / 0.5)


def test_a_narrow_corner_is_the_hinge():
    x, features, labels = records(3)
    narrow = values_of(HingeProblem(P, 1, NORM, smoothing=1e-6))(x, features, labels)
    margins = (2 * labels - 1) * torch.einsum("cp,cnp->cn", x, features)
    torch.testing.assert_close(narrow, (1 - margins).clamp(min=0).mean(1), atol=1e-6, rtol=0)


def test_it_is_found_by_name_and_takes_its_own_parameter():
    made = make_problem("hinge", 3, 1, 1.0, options={"smoothing": 0.2})
    assert isinstance(made, HingeProblem)
    assert made.smoothing == 0.2
    assert problem_class("hinge").outputs_for(2) == 1
    assert made.start(0).tolist() == [0.0] * 3
    score = made.score(torch.tensor([1.0, 0, 0]), torch.tensor([[1.0, 0, 0], [-1, 0, 0]]), torch.tensor([1, 1]))
    assert score["accuracy"] == 0.5
    assert score["loss"] == pytest.approx(0.95)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: make_problem("hinge", 3, 1, 1.0, options={"smoothing": 0.0}), "problem.smoothing"),
        (lambda: make_problem("hinge", 3, 1, 1.0, options={"smoothing": math.inf}), "problem.smoothing"),
        (lambda: make_problem("hinge", 3, 1, 1.0, options={"width": 1.0}), "problem.width"),
        (lambda: make_problem("softmax", 3, 2, 1.0, options={"smoothing": 1.0}), "problem.smoothing"),
        (lambda: make_problem("hinge", 3, 2, 1.0), "problem.kind"),
        (lambda: problem_class("hinge").outputs_for(3), "problem.kind"),
        (lambda: make_problem("hinge", 3, 1, 1.0).check(torch.zeros(1, 3), torch.tensor([2])), "data.labels"),
    ],
)
def test_wrong_values_name_their_field(call, field):
    with pytest.raises(InvalidValue) as caught:
        call()
    assert caught.value.field == field
