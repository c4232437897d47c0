"""Gradients against autograd and loops; the constants G and L, on which privacy rests, against what they bound."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from dualfed.algorithms.problems import (
    LeastSquaresProblem,
    LinearProblem,
    LogisticProblem,
    Problem,
    SoftmaxProblem,
    make_problem,
    problem_class,
    register,
)
from dualfed.algorithms.regularisers import L2, NoRegulariser
from dualfed.algorithms.shards import Shards
from dualfed.errors import InvalidValue
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

P, NORM = 6, 1.7
KINDS: dict[str, Problem] = {
    "softmax": SoftmaxProblem(P, 4, NORM),
    "softmax2-clip": SoftmaxProblem(P, 2, NORM, clip=0.6),
    "logistic": LogisticProblem(P, 1, NORM),
    "logistic-clip": LogisticProblem(P, 1, NORM, clip=0.4),
    "least-squares": LeastSquaresProblem(P, 1, NORM),
    "least-squares-clip": LeastSquaresProblem(P, 1, NORM, clip=0.9),
}
every = pytest.mark.parametrize("problem", KINDS.values(), ids=KINDS.keys())
seeds = st.integers(0, 2**32 - 1)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw_labels(problem: Problem, shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    if isinstance(problem, LeastSquaresProblem):
        return torch.randn(shape, generator=g, dtype=torch.float64)
    return torch.randint(0, max(problem.n_outputs, 2), shape, generator=g)


def draw(problem: Problem, clients: int, n: int, seed: int, size: float = 2.0) -> tuple[Tensor, Tensor, Tensor]:
    """x [C, d], features [C, n, p] of norms up to NORM, labels [C, n]."""
    g = generator(seed)
    x = size * torch.randn(clients, problem.dim, generator=g, dtype=torch.float64)
    features = torch.randn(clients, n, P, generator=g, dtype=torch.float64)
    features *= NORM * torch.rand(clients, n, 1, generator=g, dtype=torch.float64) / features.norm(dim=-1, keepdim=True)
    return x, features, draw_labels(problem, (clients, n), g)


def record_loss(problem: Problem, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The loss of one record, written once more and without regard to speed; x is [k, p] flat."""
    scores = x.view(problem.n_outputs, P) @ a
    if isinstance(problem, SoftmaxProblem):
        return cross_entropy(scores[None], b[None])
    if isinstance(problem, LogisticProblem):
        return torch.log1p(torch.exp(-(2 * b - 1) * scores[0]))
    return 0.5 * (scores[0] - b) ** 2


def record_gradient(problem: Problem, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Autograd's gradient of one record's loss, then clipped as a whole vector."""
    point = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(record_loss(problem, point, a, b), point)
    norm = float(gradient.norm())
    return gradient if problem.clip is None or norm <= problem.clip else gradient * (problem.clip / norm)


def loop_gradient(problem: Problem, x: Tensor, features: Tensor, labels: Tensor) -> Tensor:
    """Mean record gradient of each client, one record at a time."""
    return torch.stack(
        [
            torch.stack([record_gradient(problem, x[c], a, b) for a, b in zip(features[c], labels[c])]).mean(0)
            for c in range(len(x))
        ]
    )


def ragged(problem: Problem, sizes: list[int], seed: int = 0) -> tuple[Tensor, Shards]:
    total = sum(sizes)
    _, features, labels = draw(problem, 1, total, seed)
    lists = np.split(np.arange(total), np.cumsum(sizes)[:-1])
    return draw(problem, len(sizes), 1, seed + 1)[0], Shards.from_arrays(features[0].numpy(), labels[0].numpy(), lists)


@every
def test_gradient_is_the_mean_of_clipped_record_gradients(problem: Problem) -> None:
    x, features, labels = draw(problem, 3, 5, seed=1)
    expected = loop_gradient(problem, x, features, labels)
    out = torch.zeros_like(x)
    problem.add_gradient(out, x, features, labels, 1.0)
    torch.testing.assert_close(out, expected)
    if problem.clip is not None:  # else the test says nothing about clipping
        raw = torch.zeros_like(x)
        replace(problem, clip=None).add_gradient(raw, x, features, labels, 1.0)
        assert not torch.allclose(raw, expected)


@every
def test_gradient_is_added_in_place_and_scaled(problem: Problem) -> None:
    x, features, labels = draw(problem, 3, 5, seed=2)
    gradient, before = loop_gradient(problem, x, features, labels), torch.randn_like(x)
    kept = [tensor.clone() for tensor in (x, features, labels)]
    for scale in (-0.3, torch.tensor([[2.0], [0.0], [-1.5]], dtype=torch.float64)):
        out = before.clone()
        problem.add_gradient(out, x, features, labels, scale)
        torch.testing.assert_close(out, before + scale * gradient)
    for tensor, copy in zip((x, features, labels), kept):
        assert torch.equal(tensor, copy)


@every
def test_slices_of_a_gather_serve_as_batches(problem: Problem) -> None:
    x, features, labels = draw(problem, 3, 6, seed=3)
    out, same = torch.zeros_like(x), torch.zeros_like(x)
    problem.add_gradient(out, x[:1].expand(3, -1), features[:, 2:4], labels[:, 2:4], 1.0)
    rows = x[:1].repeat(3, 1)
    problem.add_gradient(same, rows, features[:, 2:4].contiguous(), labels[:, 2:4].contiguous(), 1.0)
    torch.testing.assert_close(out, same)


@every
@pytest.mark.parametrize("sizes", [[4, 4, 4], [3, 1, 3, 5]], ids=["equal", "ragged"])
def test_full_gradient_and_losses_of_each_client(problem: Problem, sizes: list[int]) -> None:
    x, shards = ragged(problem, sizes)
    slots = torch.tensor([*range(1, len(sizes)), 0])
    gradient, losses = problem.full_gradient(x, shards, slots), problem.losses(x, shards, slots)
    for row, slot in enumerate(slots.tolist()):
        features, labels = shards.client(slot)
        (expected,) = loop_gradient(problem, x[row : row + 1], features[None], labels[None])
        torch.testing.assert_close(gradient[row], expected)
        own = torch.stack([record_loss(problem, x[row], a, b) for a, b in zip(features, labels)]).mean()
        torch.testing.assert_close(losses[row], own)
    common = problem.client_losses(x[0], shards)
    everywhere = torch.arange(len(sizes))
    torch.testing.assert_close(common, problem.losses(x[:1].repeat(len(sizes), 1), shards, everywhere))


@every
@settings(max_examples=25, deadline=None)
@given(seed=seeds)
def test_no_record_gradient_exceeds_g(problem: Problem, seed: int) -> None:
    x, features, labels = draw(problem, 8, 1, seed, size=10.0)
    out = torch.zeros_like(x)
    problem.add_gradient(out, x, features, labels, 1.0)
    assert float(out.norm(dim=1).max()) <= problem.gradient_bound * (1 + 1e-12)


@pytest.mark.parametrize("name", ["softmax", "softmax2-clip", "logistic", "logistic-clip", "least-squares-clip"])
def test_g_is_reached(name: str) -> None:
    problem = KINDS[name]
    a = torch.zeros(1, 1, P, dtype=torch.float64)
    a[..., 0] = NORM
    x = torch.zeros(1, problem.dim, dtype=torch.float64)
    x[0, 0] = 50.0  # the first score is certain and the label is another
    label = torch.tensor([[-30.0]]) if isinstance(problem, LeastSquaresProblem) else torch.tensor([[1]])
    if isinstance(problem, LogisticProblem):
        label = torch.tensor([[0]])
    out = torch.zeros_like(x)
    problem.add_gradient(out, x, a, label, 1.0)
    assert float(out.norm()) == pytest.approx(problem.gradient_bound, rel=1e-6)


@every
@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_gradient_is_l_smooth_and_monotone(problem: Problem, seed: int) -> None:
    """Co-coercive: ‖∇f(x) − ∇f(y)‖² ≤ L⟨∇f(x) − ∇f(y), x − y⟩, which holds for convex L-smooth f only (clipped too)."""
    x, features, labels = draw(problem, 6, 3, seed)
    y = x + torch.randn(x.shape, generator=generator(seed + 1), dtype=torch.float64) * 10 ** (-(seed % 4))
    at_x, at_y = torch.zeros_like(x), torch.zeros_like(x)
    problem.add_gradient(at_x, x, features, labels, 1.0)
    problem.add_gradient(at_y, y, features, labels, 1.0)
    change = at_x - at_y
    assert problem.convex_smooth
    assert (change.square().sum(1) <= problem.smoothness * (change * (x - y)).sum(1) + 1e-10).all()


@pytest.mark.parametrize("name", ["softmax", "logistic", "least-squares"])
def test_largest_hessian_eigenvalue_reaches_l(name: str) -> None:
    """Where two classes share the probability, on a record of the declared norm."""
    problem = KINDS[name]
    a = torch.zeros(P, dtype=torch.float64)
    a[1] = NORM
    x = torch.zeros(problem.dim, dtype=torch.float64)
    if problem.n_outputs > 1:
        x.view(problem.n_outputs, P)[:2, 1] = 20.0
    b = torch.tensor(0.0) if isinstance(problem, LeastSquaresProblem) else torch.tensor(1)
    hessian = torch.autograd.functional.hessian(lambda z: record_loss(problem, z, a, b), x)
    assert float(torch.linalg.eigvalsh(hessian)[-1]) == pytest.approx(problem.smoothness, rel=1e-6)


@pytest.mark.parametrize("name", ["logistic-clip", "least-squares-clip", "softmax2-clip"])
@settings(max_examples=20, deadline=None)
@given(seed=seeds)
def test_clipped_gradient_step_does_not_expand(name: str, seed: int) -> None:
    """The contraction that (D1) and (D2) use: a step of 1/γ with γ = L/2, its limit."""
    problem = KINDS[name]
    x, features, labels = draw(problem, 6, 1, seed)
    y = draw(problem, 6, 1, seed + 1)[0]
    before = (x - y).norm(dim=1)
    step = -2 / problem.smoothness
    moved_x, moved_y = x.clone(), y.clone()
    problem.add_gradient(moved_x, x, features, labels, step)
    problem.add_gradient(moved_y, y, features, labels, step)
    assert ((moved_x - moved_y).norm(dim=1) <= before * (1 + 1e-12)).all()


@every
def test_zero_records_give_zero_gradients(problem: Problem) -> None:
    x, features, labels = draw(problem, 2, 3, seed=5)
    out = torch.zeros_like(x)
    problem.add_gradient(out, x, torch.zeros_like(features), labels, 1.0)
    assert torch.equal(out, torch.zeros_like(out))


@every
def test_single_precision_agrees(problem: Problem) -> None:
    x, features, labels = draw(problem, 3, 5, seed=7)
    out, single = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.float32)
    problem.add_gradient(out, x, features, labels, 0.5)
    narrow = labels.float() if labels.is_floating_point() else labels
    problem.add_gradient(single, x.float(), features.float(), narrow, 0.5)
    torch.testing.assert_close(single.double(), out, atol=1e-5, rtol=1e-4)


def test_large_scores_give_finite_losses() -> None:
    for problem in (SoftmaxProblem(1, 2, 1.0), LogisticProblem(1, 1, 1.0)):
        x = torch.full((problem.dim,), 2e3, dtype=torch.float64)
        x[1:] = -2e3
        wrong = 1 if problem.n_outputs == 2 else 0
        shards = Shards.from_arrays(np.ones((2, 1)), np.array([wrong, 1 - wrong]), [np.array([0]), np.array([1])])
        loss = problem.client_losses(x, shards)
        assert loss.tolist() == [4e3 if problem.n_outputs == 2 else 2e3, 0.0]


def test_score_of_classes() -> None:
    problem = SoftmaxProblem(2, 3, 1.0)
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]).flatten()
    features, labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-0.6, -0.6], [1.0, 0.0]]), torch.tensor([0, 1, 2, 1])
    score = problem.score(x, features, labels)
    assert score["accuracy"] == 0.75
    assert score["loss"] == pytest.approx(float(cross_entropy(features @ x.view(3, 2).T, labels)))
    binary = LogisticProblem(1, 1, 1.0).score(torch.tensor([2.0]), torch.tensor([[1.0], [-1.0]]), torch.tensor([1, 1]))
    assert binary["accuracy"] == 0.5
    assert binary["loss"] == pytest.approx((math.log1p(math.exp(-2)) + math.log1p(math.exp(2))) / 2)


def test_score_of_targets() -> None:
    problem, x = LeastSquaresProblem(1, 1, 3.0), torch.tensor([1.0])
    features, targets = torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([1.0, 2.0, 4.0])
    score = problem.score(x, features, targets)
    assert score["loss"] == pytest.approx(1 / 6)
    assert score["r2"] == pytest.approx(1 - 1 / (14 / 3))
    assert problem.score(x, torch.ones(2, 1), torch.ones(2))["r2"] == 1
    assert problem.score(x, torch.ones(2, 1), torch.zeros(2))["r2"] == 0


def test_constants() -> None:
    softmax, logistic = SoftmaxProblem(4, 3, math.sqrt(2)), LogisticProblem(4, 1, math.sqrt(2))
    assert (softmax.gradient_bound, softmax.smoothness) == pytest.approx((2, 1))
    assert (logistic.gradient_bound, logistic.smoothness) == pytest.approx((math.sqrt(2), 0.5))
    assert (softmax.dim, logistic.dim) == (12, 4)
    squares = LeastSquaresProblem(4, 1, 3.0)
    assert (squares.gradient_bound, squares.smoothness) == (math.inf, 9)
    assert replace(squares, clip=2.0).gradient_bound == 2
    assert replace(logistic, clip=5.0).gradient_bound == logistic.gradient_bound
    assert [p.has_accuracy for p in (softmax, logistic, squares)] == [True, True, False]


@pytest.mark.parametrize(
    ("kind", "outputs", "changes", "field"),
    [
        ("softmax", 3, {"clip": 1.0}, "problem.clip"),
        ("softmax", 1, {}, "problem.kind"),
        ("logistic", 2, {}, "problem.kind"),
        ("least-squares", 2, {}, "problem.kind"),
        ("logistic", 1, {"clip": 0.0}, "problem.clip"),
        ("logistic", 1, {"clip": math.nan}, "problem.clip"),
        ("logistic", 1, {"record_norm": math.inf}, "problem.record_norm"),
        ("logistic", 1, {"record_norm": -1.0}, "problem.record_norm"),
        ("logistic", 1, {"n_features": 0}, "data.features"),
        ("hinge-of-nobody", 1, {}, "problem.kind"),
    ],
)
def test_wrong_constants_name_their_field(kind: str, outputs: int, changes: dict, field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make_problem(kind, **{"n_features": 3, "n_outputs": outputs, "record_norm": 1.0, **changes})
    assert caught.value.field == field


def good(problem: Problem) -> tuple[Tensor, Tensor]:
    _, features, labels = draw(problem, 1, 8, seed=11)
    return features[0], labels[0]


@every
def test_check_takes_good_records(problem: Problem) -> None:
    features, labels = good(problem)
    features[2] *= NORM * (1 + 5e-7) / features[2].norm()  # past the bound by rounding
    problem.check(features, labels)


@every
@pytest.mark.parametrize("fault", [math.nan, math.inf, 1e200, "long"])
def test_check_names_the_first_bad_record(problem: Problem, fault: float | str) -> None:
    features, labels = good(problem)
    if fault == "long":
        features[5] *= NORM * (1 + 1e-5) / features[5].norm()
    else:
        features[5, 2] = fault
    with pytest.raises(InvalidValue, match="record 5") as caught:
        problem.check(features, labels)
    assert caught.value.field == "data.features"


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("softmax", [0, 4]),
        ("softmax", [-1, 0]),
        ("softmax", [0.0, 1.0]),
        ("logistic", [0, 2]),
        ("logistic", [-1, 1]),
        ("least-squares", [0.0, math.nan]),
        ("least-squares", [math.inf, 0.0]),
        ("softmax", [0, 1, 1]),
    ],
)
def test_check_refuses_labels(name: str, labels: list[float]) -> None:
    with pytest.raises(InvalidValue) as caught:
        KINDS[name].check(torch.zeros(2, P), torch.tensor(labels))
    assert caught.value.field == "data.labels"


def test_check_refuses_another_width() -> None:
    with pytest.raises(InvalidValue, match="6 features"):
        KINDS["softmax"].check(torch.zeros(2, P + 1), torch.tensor([0, 1]))


def test_outputs_for_data() -> None:
    assert SoftmaxProblem.outputs_for(10) == 10
    assert LogisticProblem.outputs_for(2) == 1
    assert LeastSquaresProblem.outputs_for(0) == LeastSquaresProblem.outputs_for(10) == 1
    for kind, classes in (("softmax", 0), ("logistic", 3), ("logistic", 0)):
        with pytest.raises(InvalidValue):
            problem_class(kind).outputs_for(classes)


def test_registry_takes_problems_of_others() -> None:
    class Absolute(LeastSquaresProblem):
        name: ClassVar[str] = "of-a-third-party"

    register(Absolute)
    made = make_problem("of-a-third-party", 3, 1, 1.0, L2(0.5))
    assert isinstance(made, Absolute)
    assert made.regulariser == L2(0.5)
    assert make_problem("softmax", 3, 2, 1.0).regulariser == NoRegulariser()
    assert issubclass(problem_class("softmax"), LinearProblem)

    class Impostor(LeastSquaresProblem):
        name: ClassVar[str] = "softmax"

    with pytest.raises(InvalidValue, match="SoftmaxProblem"):
        register(Impostor)
