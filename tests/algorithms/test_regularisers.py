"""Every proximal operator against a numerical minimiser and the properties that define one."""

from __future__ import annotations

import math

import pytest
import torch
from dualfed.algorithms.regularisers import L1, L2, Ball, Box, ElasticNet, NoRegulariser, Regulariser, make_regulariser
from dualfed.errors import InvalidValue
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, minimize_scalar
from torch import Tensor

ALL: list[Regulariser] = [
    NoRegulariser(),
    L2(0.7),
    L1(0.4),
    ElasticNet(0.3, 0.9),
    Box(-0.5, 0.8),
    Ball(1.3),
]
SEPARABLE = [r for r in ALL if not isinstance(r, Ball)]
numbers = st.floats(-5, 5, allow_nan=False, width=32)
vectors = st.lists(numbers, min_size=4, max_size=4).map(lambda v: torch.tensor(v, dtype=torch.float64))
alphas = st.floats(0.01, 10)


def ids(r: Regulariser) -> str:
    return type(r).__name__


def prox(r: Regulariser, v: Tensor, alpha: float) -> Tensor:
    return r.prox_(v.clone(), alpha)


@pytest.mark.parametrize("r", ALL, ids=ids)
def test_writes_over_its_argument(r: Regulariser) -> None:
    v = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 3
    expected = torch.stack([torch.stack([prox(r, row, 0.6) for row in rows]) for rows in v])
    out = r.prox_(v, 0.6)
    assert out is v
    torch.testing.assert_close(v, expected)
    assert r.value(v).shape == (3, 2)


@pytest.mark.parametrize("r", SEPARABLE, ids=ids)
@settings(max_examples=25, deadline=None)
@given(v=numbers, alpha=alphas)
def test_is_the_minimiser_in_each_coordinate(r: Regulariser, v: float, alpha: float) -> None:
    low, high = (r.lower, r.upper) if isinstance(r, Box) else (-6.0, 6.0)

    def objective(x: float) -> float:
        return float(r.value(torch.tensor([x], dtype=torch.float64))) + (x - v) ** 2 / (2 * alpha)

    found = minimize_scalar(objective, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    x = float(prox(r, torch.tensor([v], dtype=torch.float64), alpha))
    assert x == pytest.approx(found.x, abs=1e-4)
    assert objective(x) <= found.fun + 1e-9


@settings(max_examples=20, deadline=None)
@given(v=vectors)
def test_ball_is_the_nearest_point_inside(v: Tensor) -> None:
    r = Ball(1.3)
    target = v.numpy()
    inside = {"type": "ineq", "fun": lambda x: r.radius**2 - x @ x, "jac": lambda x: -2 * x}
    found = minimize(lambda x: ((x - target) ** 2).sum(), x0=target * 0.1, constraints=inside, method="SLSQP")
    torch.testing.assert_close(prox(r, v, 2.0), torch.from_numpy(found.x), atol=2e-3, rtol=0)


@pytest.mark.parametrize("r", ALL, ids=ids)
@settings(max_examples=30, deadline=None)
@given(u=vectors, v=vectors, alpha=alphas)
def test_is_firmly_non_expansive(r: Regulariser, u: Tensor, v: Tensor, alpha: float) -> None:
    p, q = prox(r, u, alpha), prox(r, v, alpha)
    assert float((p - q).square().sum()) <= float((p - q) @ (u - v)) + 1e-9


@pytest.mark.parametrize("r", ALL, ids=ids)
@settings(max_examples=30, deadline=None)
@given(v=vectors, y=vectors, alpha=alphas)
def test_step_is_a_subgradient(r: Regulariser, v: Tensor, y: Tensor, alpha: float) -> None:
    """(v − p)/α ∈ ∂R(p), that is R(y) ≥ R(p) + ⟨(v − p)/α, y − p⟩ for every y in the domain."""
    p, y = prox(r, v, alpha), prox(r, y, 1.0) if math.isinf(float(r.value(y))) else y
    assert float(r.value(y)) >= float(r.value(p)) + float((v - p) @ (y - p)) / alpha - 1e-6


@pytest.mark.parametrize(
    ("r", "conjugate_prox"),
    [
        (L1(0.4), lambda v, alpha: v.clamp(-0.4, 0.4)),
        (L2(0.7), lambda v, alpha: v / (1 + alpha / 0.7)),
        (Ball(1.3), lambda v, alpha: v * (1 - 1.3 * alpha / v.norm()).clamp(min=0)),
    ],
    ids=["L1", "L2", "Ball"],
)
def test_moreau(r: Regulariser, conjugate_prox: object) -> None:
    """v = prox_{αR}(v) + α·prox_{R*/α}(v/α), with R* known in closed form."""
    generator = torch.Generator().manual_seed(3)
    for alpha in (0.1, 1.0, 4.0):
        v = 2 * torch.randn(6, generator=generator, dtype=torch.float64)
        other = conjugate_prox(v / alpha, 1 / alpha)  # type: ignore[operator]
        torch.testing.assert_close(prox(r, v, alpha) + alpha * other, v)


def test_values() -> None:
    x = torch.tensor([[3.0, -4.0], [0.0, 0.0]], dtype=torch.float64)
    assert NoRegulariser().value(x).tolist() == [0, 0]
    assert L2(2.0).value(x).tolist() == [25, 0]
    assert L1(2.0).value(x).tolist() == [14, 0]
    assert ElasticNet(2.0, 4.0).value(x).tolist() == [64, 0]
    assert Box(-1, 1).value(x).tolist() == [math.inf, 0]
    assert Box(-math.inf, 4).value(x).tolist() == [0, 0]
    assert Box(-math.inf, 1).value(x).tolist() == [math.inf, 0]
    assert Ball(4.9).value(x).tolist() == [math.inf, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("r", [Box(-0.3, 0.7), Ball(0.1), Ball(1e3)], ids=ids)
def test_rounding_keeps_projections_and_their_means_inside(r: Regulariser, dtype: torch.dtype) -> None:
    v = 100 * torch.randn(50, 1000, generator=torch.Generator().manual_seed(0), dtype=dtype)
    p = r.prox_(v, 1.0)
    assert (r.value(p) == 0).all()
    assert float(r.value(p.mean(0))) == 0


def test_zero_stays_in_the_ball() -> None:
    assert prox(Ball(1.0), torch.zeros(2, 3), 1.0).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_smooth_says_which_have_gradients() -> None:
    assert [r.smooth for r in ALL] == [True, True, False, False, False, False]


def test_by_name() -> None:
    made = [make_regulariser(kind, 0.1, 0.2, -2, 3, 4) for kind in ("none", "l2", "l1", "elastic-net", "box", "ball")]
    assert made == [NoRegulariser(), L2(0.1), L1(0.1), ElasticNet(0.1, 0.2), Box(-2, 3), Ball(4)]


@pytest.mark.parametrize(
    ("kind", "values", "field"),
    [
        ("l3", {}, "problem.regulariser"),
        ("l2", {"weight": -1.0}, "problem.weight"),
        ("l1", {"weight": math.nan}, "problem.weight"),
        ("elastic-net", {"weight_l2": math.inf}, "problem.weight_l2"),
        ("box", {"lower": 1.0, "upper": 1.0}, "problem.lower"),
        ("box", {"lower": math.nan}, "problem.lower"),
        ("ball", {"radius": 0.0}, "problem.radius"),
    ],
)
def test_wrong_parameters_name_their_field(kind: str, values: dict[str, float], field: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        make_regulariser(kind, **values)
    assert caught.value.field == field


@pytest.mark.parametrize("kind", ["none", "l2", "l1", "elastic-net"])
def test_a_subgradient_lies_below_the_function(kind):
    """R(y) ≥ R(x) + ⟨g, y − x⟩ for all y, with corners among the x; and it is the gradient where there is one."""
    regulariser = make_regulariser(kind, weight=0.7, weight_l2=0.3)
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, 5, generator=draw, dtype=torch.float64)
    x[:20, :2] = 0
    y = torch.randn(40, 5, generator=draw, dtype=torch.float64)
    slope = regulariser.subgradient(x)
    gap = regulariser.value(y) - regulariser.value(x) - (slope * (y - x)).sum(-1)
    assert float(gap.min()) >= -1e-12
    smooth = x[20:].clone().requires_grad_(True)
    value = regulariser.value(smooth).sum()
    if kind != "none":
        value.backward()
        torch.testing.assert_close(slope[20:], smooth.grad)


@pytest.mark.parametrize("kind", ["box", "ball"])
def test_a_constraint_has_no_subgradient_step(kind):
    regulariser = make_regulariser(kind)
    assert regulariser.constraint
    with pytest.raises(InvalidValue, match=r"problem.regulariser"):
        regulariser.subgradient(torch.zeros(1, 2))
