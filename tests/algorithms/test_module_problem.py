"""Modules as problems: gradients against loops of autograd, their start, what is refused, and that actors can build them."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.algorithms.problems import ModuleProblem, make_problem, module, problem_class
from dualfed.algorithms.queries.estimators import local_stage, values_of
from dualfed.algorithms.shards import Shards
from dualfed.errors import InvalidValue
from torch import nn

P = 16
SMALL = {"model_options": {"hidden": [5], "activation": "tanh"}}
IMAGES = {"model": "cnn", "model_options": {"channels": [3], "hidden": 4}}
PROBLEMS = {
    "mlp": lambda: ModuleProblem(P, 3, 1.0, **SMALL),
    "mlp, clipped": lambda: ModuleProblem(P, 3, 1.0, clip=0.4, **SMALL),
    "regression": lambda: ModuleProblem(P, 1, 1.0, **SMALL),
    "regression, clipped": lambda: ModuleProblem(P, 1, 1.0, clip=0.4, **SMALL),
    "cnn": lambda: ModuleProblem(P, 3, 1.0, **IMAGES),
    "cnn, clipped": lambda: ModuleProblem(P, 3, 1.0, clip=0.2, **IMAGES),
}
every = pytest.mark.parametrize("name", PROBLEMS)


def records(problem, clients, n, seed=0):
    """x [C, d] around the start, features [C, n, p], labels [C, n]."""
    g = torch.Generator().manual_seed(seed)
    start = torch.from_numpy(problem.start(seed))
    x = start + 0.2 * torch.randn(clients, problem.dim, generator=g, dtype=torch.float64)
    features = torch.randn(clients, n, P, generator=g, dtype=torch.float64)
    if problem.n_outputs == 1:
        return x, features, torch.randn(clients, n, generator=g, dtype=torch.float64)
    return x, features, torch.randint(0, problem.n_outputs, (clients, n), generator=g)


def loss_by_hand(problem, x, features, labels):
    """The mean loss with the parameters written into a module of their own, in plain autograd."""
    made = problem._build(0).double()
    nn.utils.vector_to_parameters(x, made.parameters())
    outputs = made(features)
    if problem.n_outputs > 1:
        return nn.functional.cross_entropy(outputs, labels), made
    return 0.5 * (outputs[:, 0] - labels).square().mean(), made


def record_gradients(problem, x, features, labels):
    rows = []
    for a, b in zip(features, labels):
        loss, made = loss_by_hand(problem, x, a[None], b[None])
        g = torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(made.parameters()))])
        norm = float(g.norm())
        rows.append(g if problem.clip is None or norm <= problem.clip else g * (problem.clip / norm))
    return torch.stack(rows)


@every
@pytest.mark.parametrize("limit", [None, 4], ids=["whole", "in blocks"])
def test_gradient_is_the_mean_of_clipped_record_gradients(name, limit, monkeypatch):
    problem = PROBLEMS[name]()
    if limit:
        monkeypatch.setattr(module, "RECORD_LIMIT", limit)
    x, features, labels = records(problem, 3, 6)
    expected = torch.stack([record_gradients(problem, *each).mean(0) for each in zip(x, features, labels)])
    out = torch.ones_like(x)
    problem.add_gradient(out, x, features, labels, -0.5)
    torch.testing.assert_close(out, 1 - 0.5 * expected)
    scale = torch.tensor([[1.0], [0.0], [2.0]], dtype=torch.float64)
    out = torch.zeros_like(x)
    problem.add_gradient(out, x, features, labels, scale)
    torch.testing.assert_close(out, scale * expected)


@every
def test_ragged_clients(name):
    problem = PROBLEMS[name]()
    x, features, labels = records(problem, 3, 5)
    flat, flat_labels = features.flatten(0, 1), labels.flatten()
    shards = Shards.from_flat(flat.numpy(), flat_labels.numpy(), np.array([0, 7, 9, 15]))
    slots = torch.tensor([1, 2, 0])
    gradient, losses = problem.full_gradient(x, shards, slots), problem.losses(x, shards, slots)
    for row, slot in enumerate(slots.tolist()):
        own, own_labels = shards.client(slot)
        torch.testing.assert_close(gradient[row], record_gradients(problem, x[row], own, own_labels).mean(0))
        torch.testing.assert_close(losses[row], loss_by_hand(problem, x[row], own, own_labels)[0].detach())
    common = problem.client_losses(x[0], shards)
    torch.testing.assert_close(common, problem.losses(x[:1].expand(3, -1), shards, torch.arange(3)))
    score = problem.score(x[0], flat, flat_labels)
    assert score["loss"] == pytest.approx(float(loss_by_hand(problem, x[0], flat, flat_labels)[0].detach()))
    assert problem.has_accuracy == ("accuracy" in score) == ("r2" not in score)
    torch.testing.assert_close(
        values_of(problem)(x, features, labels)[0], loss_by_hand(problem, x[0], features[0], labels[0])[0].detach()
    )


def test_no_clipped_gradient_exceeds_g():
    problem = PROBLEMS["mlp, clipped"]()
    x, features, labels = records(problem, 30, 1)
    out = torch.zeros_like(x)
    problem.add_gradient(out, 3 * x, 10 * features, labels)
    assert 0.9 * problem.gradient_bound <= float(out.norm(dim=1).max()) <= problem.gradient_bound * (1 + 1e-9)


def test_single_precision():
    problem = PROBLEMS["mlp"]()
    x, features, labels = records(problem, 2, 4)
    wide, narrow = torch.zeros_like(x), torch.zeros_like(x, dtype=torch.float32)
    problem.add_gradient(wide, x, features, labels)
    problem.add_gradient(narrow, x.float(), features.float(), labels)
    torch.testing.assert_close(narrow.double(), wide, atol=1e-5, rtol=1e-4)


def test_the_start_is_keyed_and_leaves_the_global_generators():
    problem = PROBLEMS["mlp"]()
    before = torch.random.get_rng_state()
    start = problem.start(5)
    assert torch.equal(before, torch.random.get_rng_state())
    torch.manual_seed(123)
    assert np.array_equal(start, PROBLEMS["mlp"]().start(5))
    assert not np.array_equal(start, problem.start(6))
    assert start.shape == (problem.dim,)
    assert start.dtype == np.float64
    assert start.std() > 0.05


def test_it_travels_as_what_it_was_given():
    problem = ModuleProblem(64, 10, 1.0, model="mlp", model_options={"hidden": [500]})
    problem.start(0)
    packed = pickle.dumps(problem)
    assert len(packed) < 2000 < problem.dim
    assert pickle.loads(packed) == problem
    assert pickle.loads(packed).dim == problem.dim


def test_constants():
    free, clipped = PROBLEMS["mlp"](), PROBLEMS["mlp, clipped"]()
    assert (free.gradient_bound, clipped.gradient_bound) == (math.inf, 0.4)
    assert free.smoothness == math.inf
    assert not free.convex_smooth
    assert free.dim == P * 5 + 5 + 5 * 3 + 3
    assert ModuleProblem(P, 3, math.inf, **SMALL).record_norm == math.inf
    assert (problem_class("module").outputs_for(10), problem_class("module").outputs_for(0)) == (10, 1)


def test_a_record_level_bound_needs_one_step_or_a_clipped_increment():
    problem, sizes, ones = PROBLEMS["mlp, clipped"](), np.array([40]), np.ones(1)
    with pytest.raises(InvalidValue, match="increment_clip") as caught:
        FedSPDDP(local_steps=2, batch_size=5).validate(problem, sizes, ones, True)
    assert caught.value.field == "method.local_steps"
    with pytest.raises(InvalidValue, match="increment_clip") as caught:
        FedSPDDP(local_steps=1, batch_size=5).validate(PROBLEMS["mlp"](), sizes, ones, True)
    assert caught.value.field == "problem.clip"
    one = FedSPDDP(local_steps=1, batch_size=5, rho=0.5, gamma=2.0)
    one.validate(problem, sizes, ones, True)
    assert one.bound(problem, sizes, ones, 1).sensitivity == pytest.approx(2 * 0.4 / (5 * 2.5))
    many = FedSPDDP(local_steps=5, batch_size=5, increment_clip=0.3)
    many.validate(PROBLEMS["mlp"](), sizes, ones, True)
    assert many.event(PROBLEMS["mlp"](), 40, 1.0, 1).unit == "client"


def test_function_values_serve_a_derivative_free_method():
    problem = PROBLEMS["mlp"]()
    x, features, labels = records(problem, 2, 8)
    shards = Shards.from_flat(features.flatten(0, 1).numpy(), labels.flatten().numpy(), np.array([0, 8, 16]))
    stage = local_stage(
        problem, shards, torch.arange(2), x, torch.zeros_like(x), estimator="baseline", direction="rademacher", eta=0.01,
        mu=0.01, steps=np.array([6, 6]), batch=np.array([2, 2]), keys=np.arange(4, dtype=np.uint64).reshape(2, 2),
    )  # fmt: skip
    assert bool(torch.isfinite(stage.delta).all())
    assert stage.queries.tolist() == [20, 20]
    torch.testing.assert_close(torch.from_numpy(stage.level), problem.losses(x, shards, torch.arange(2)))


def affine(n_features, n_outputs, *, bias=True):
    """A factory as a user writes it."""
    return nn.Linear(n_features, n_outputs, bias=bias)


class Buffered(nn.Linear):
    def __init__(self, n_features, n_outputs):
        super().__init__(n_features, n_outputs)
        self.register_buffer("seen", torch.zeros(1))


class Noisy(nn.Linear):
    def forward(self, x):
        return super().forward(x) + torch.randn(x.shape[0], self.out_features)


class Frozen(nn.Linear):
    def __init__(self, n_features, n_outputs):
        super().__init__(n_features, n_outputs)
        self.bias.requires_grad_(False)


def with_batch_norm(n_features, n_outputs):
    return nn.Sequential(nn.BatchNorm1d(n_features), nn.Linear(n_features, n_outputs))


def with_dropout(n_features, n_outputs):
    return nn.Sequential(nn.Dropout(0.1), nn.Linear(n_features, n_outputs))


def failing(n_features, n_outputs):
    raise OSError("no weights here")


def test_a_factory_of_ones_own():
    options = {"model": "torch.nn:Linear", "model_options": {"bias": False}}
    by_name = make_problem("module", P, 3, 1.0, options=options)
    assert by_name.dim == 3 * P
    given = ModuleProblem(P, 3, 1.0, model=affine, model_options={"bias": False})
    assert np.array_equal(given.start(1), by_name.start(1))


@pytest.mark.parametrize(
    ("model", "options", "field", "words"),
    [
        ("mpl", {}, "problem.model", "package.module:factory"),
        ("no_such_package:net", {}, "problem.model", "cannot be imported"),
        ("torch.nn:Lineal", {}, "problem.model", "has no Lineal"),
        ("math:pi", {}, "problem.model", "cannot be called"),
        ("mlp", {"widths": [3]}, "problem.model_options", "widths"),
        ("mlp", {"hidden": [0]}, "problem.model_options", "whole numbers"),
        ("mlp", {"activation": "sinh"}, "problem.model_options", "tanh"),
        ("cnn", {"image": [5, 5]}, "problem.model_options", "data.bias = false"),
        ("cnn", {"channels": [2, 2, 2]}, "problem.model_options", "halves"),
        (failing, {}, "problem.model", "no weights here"),
        (Buffered, {}, "problem.model", "seen is a buffer"),
        (with_batch_norm, {}, "problem.model", "GroupNorm"),
        (with_dropout, {}, "problem.model", "dropout"),
        (Noisy, {}, "problem.model", "torch.func"),
        (Frozen, {}, "problem.model", "bias is not trained"),
        (lambda p, k: nn.Linear(p, k + 1), {}, "problem.model", "outputs of shape"),
        (lambda p, k: nn.Linear(p + 1, k), {}, "problem.model", "fails on records"),
        (lambda p, k: nn.ReLU(), {}, "problem.model", "no parameters"),
        (lambda p, k: 3, {}, "problem.model", "torch.nn.Module"),
    ],
)
def test_what_cannot_be_trained_is_refused(model, options, field, words):
    with pytest.raises(InvalidValue, match=words) as caught:
        ModuleProblem(P, 3, 1.0, model=model, model_options=options)
    assert caught.value.field == field
    assert "\n" not in str(caught.value)


def test_labels_are_checked():
    with pytest.raises(InvalidValue, match=r"data\.labels"):
        PROBLEMS["mlp"]().check(torch.zeros(2, P), torch.tensor([0, 3]))
    with pytest.raises(InvalidValue, match=r"data\.labels"):
        PROBLEMS["regression"]().check(torch.zeros(2, P), torch.tensor([0.0, math.nan]))
