"""FedSPD-DP against a literal transcription of SPEC section 2, and its sensitivity against neighbouring data sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from dualfed.algorithms.denoise import carried_noise
from dualfed.algorithms.fedspd_dp import FedSPDDP
from dualfed.algorithms.method import Cohort
from dualfed.algorithms.problems import make_problem
from dualfed.algorithms.regularisers import L1
from dualfed.algorithms.shards import Shards
from dualfed.errors import InvalidValue
from dualfed.keys import generator, noise_key
from dualfed.privacy.events import GaussianEvent
from dualfed.privacy.gate import Granted, NoiseGate

P, CLASSES, SIZES = 4, 3, (11, 14, 20)
RHO, GAMMA = 0.7, 1.9


def softmax_world(seed=0):
    draw = generator(b"test", "world", round=seed)
    features = draw.standard_normal((sum(SIZES), P))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    labels = draw.integers(0, CLASSES, sum(SIZES))
    return features, labels, np.concatenate([[0], np.cumsum(SIZES)])


def cohort_of(problem, shards, weights=None):
    sizes = shards.sizes.numpy()
    ids = np.arange(len(sizes))
    return Cohort(problem, shards, torch.from_numpy(ids), ids, sizes, np.ones(len(ids)) if weights is None else weights)


def open_gate(method, cohort, t, z=0.0):
    bound = method.bound(cohort.problem, cohort.sizes, cohort.weights, t)
    n = len(cohort)
    return NoiseGate(Granted(t, cohort.clients, np.full(n, t - 1), np.full(n, z)), bound, noise_key(5))


def record_gradient(x, a, b):
    logits = x.reshape(CLASSES, P) @ a
    share = np.exp(logits - logits.max())
    share /= share.sum()
    share[b] -= 1
    return np.outer(share, a).ravel()


@pytest.mark.parametrize("state", ["released", "paper"])
@pytest.mark.parametrize("batches", ["epoch", "independent", "iid", "full"])
def test_rounds_equal_the_equations_written_out(state, batches):
    features, labels, offsets = softmax_world()
    shards = Shards.from_flat(features, labels, offsets)
    problem = make_problem("softmax", P, CLASSES, 1.0, L1(0.05))
    weights = np.array([0.5, 1.0, 1.5])
    cohort = cohort_of(problem, shards, weights)
    method = FedSPDDP(
        rounds=3,
        local_steps=3,
        batch_size=2,
        rho=RHO,
        gamma={"value": GAMMA, "shape": "sqrt"},
        state=state,
        batches=batches,
    )
    rows = {name: row.expand(3, -1) for name, row in method.init(torch.zeros(problem.dim, dtype=torch.float64)).items()}
    x, dual = np.zeros((3, P * CLASSES)), np.zeros((3, P * CLASSES))
    z = 0.8
    for t in (1, 2, 3):
        x0 = np.linspace(-1, 1, P * CLASSES) / t
        gamma = GAMMA * np.sqrt(t)
        drawn = open_gate(method, cohort, t).batches("epoch" if batches == "full" else batches, SIZES, 3, 2).numpy()
        noise = open_gate(method, cohort, t, z).release(torch.zeros(3, problem.dim, dtype=torch.float64)).numpy()
        upload = np.empty_like(x)
        for i in range(3):
            point, total = x[i], np.zeros(P * CLASSES)
            for r in range(3):
                chosen = range(SIZES[i]) if batches == "full" else drawn[i, 2 * r : 2 * r + 2]
                g = weights[i] * np.mean(
                    [record_gradient(point, features[offsets[i] + j], labels[offsets[i] + j]) for j in chosen], axis=0
                )
                v = (gamma * point + RHO * x0 - dual[i] - g) / (gamma + RHO)  # (C1)
                point = np.sign(v) * np.maximum(np.abs(v) - 0.05 / (gamma + RHO), 0)
                total += point
            average = total / 3  # (C2)
            x[i] = average + noise[i] if state == "released" else average  # (C3)
            dual[i] += RHO * (x[i] - x0)
            upload[i] = x[i] + dual[i] / RHO + (noise[i] if state == "paper" else 0)
        rows = method.local_round(rows, torch.from_numpy(x0), cohort, open_gate(method, cohort, t, z), t)
        np.testing.assert_allclose(rows["x"].numpy(), x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(rows["dual"].numpy(), dual, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(method.upload(rows).numpy(), upload, rtol=1e-9, atol=1e-12)


def test_memory_starts_from_a_shrunken_copy():
    features, labels, offsets = softmax_world()
    problem = make_problem("softmax", P, CLASSES, 1.0)
    cohort = cohort_of(problem, Shards.from_flat(features, labels, offsets))
    method, whole = FedSPDDP(local_steps=2, batch_size=2, memory=0.25), FedSPDDP(local_steps=2, batch_size=2)
    draw = generator(b"test", "state")
    x, dual, x0 = (torch.from_numpy(draw.standard_normal((3, problem.dim))) for _ in range(3))
    x0 = x0[0]
    shrunk = {"x": x0 + 0.25 * (x - x0), "dual": 0.25 * dual}
    expected = whole.local_round(shrunk, x0, cohort, open_gate(whole, cohort, 1), 1)
    got = method.local_round({"x": x, "dual": dual}, x0, cohort, open_gate(method, cohort, 1), 1)
    for name in expected:
        torch.testing.assert_close(got[name], expected[name])


def test_automatic_memory_is_the_method_itself_without_noise():
    features, labels, offsets = softmax_world()
    problem = make_problem("softmax", P, CLASSES, 1.0)
    cohort = cohort_of(problem, Shards.from_flat(features, labels, offsets))
    common = {"local_steps": 2, "batch_size": 3, "rho": RHO, "gamma": GAMMA}
    auto, whole = FedSPDDP(**common, memory="auto"), FedSPDDP(**common)
    states = [
        {name: row.expand(3, -1) for name, row in each.init(torch.zeros(problem.dim, dtype=torch.float64)).items()}
        for each in (auto, whole)
    ]
    for t in range(1, 6):
        x0 = whole.upload(states[1]).mean(0)
        states = [
            each.local_round(state, x0, cohort, open_gate(each, cohort, t), t)
            for each, state in zip((auto, whole), states)
        ]
        for name in ("x", "dual"):
            assert torch.equal(states[0][name], states[1][name])
        assert not states[0]["noise"].any()


def test_automatic_memory_keeps_the_dual():
    features, labels, offsets = softmax_world()
    problem = make_problem("softmax", P, CLASSES, 1.0)
    cohort = cohort_of(problem, Shards.from_flat(features, labels, offsets))
    common = {"local_steps": 2, "batch_size": 3, "rho": RHO, "gamma": GAMMA}
    auto, whole = FedSPDDP(**common, memory="auto"), FedSPDDP(**common)
    draw = generator(b"test", "memory")
    x, dual, x0 = (torch.from_numpy(draw.standard_normal((3, problem.dim))) for _ in range(3))
    much = torch.tensor([[1e3, 0.0, 1e3]], dtype=torch.float64).expand(3, 3)
    got = auto.local_round({"x": x, "dual": dual, "noise": much}, x0[0], cohort, open_gate(auto, cohort, 1, 0.5), 1)
    forgotten = {"x": x0[:1].expand(3, -1), "dual": dual}
    expected = whole.local_round(forgotten, x0[0], cohort, open_gate(whole, cohort, 1, 0.5), 1)
    for name in expected:
        torch.testing.assert_close(got[name], expected[name])


def test_automatic_memory_forgets_what_is_noise_alone():
    """A cohort in which one client adds noise, one adds very much, and one none."""
    features, labels, offsets = softmax_world()
    problem = make_problem("softmax", P, CLASSES, 1.0)
    cohort = cohort_of(problem, Shards.from_flat(features, labels, offsets))
    method = FedSPDDP(local_steps=2, batch_size=3, rho=RHO, gamma=GAMMA, memory="auto")
    draw = generator(b"test", "memory")
    x0, x, dual = (torch.from_numpy(draw.standard_normal((3, problem.dim))) for _ in range(3))
    noise = torch.tensor([[0.1, 0.0, 0.0], [1e3, 0.0, 0.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    state = {"x": x, "dual": dual, "noise": noise}
    gate = open_gate(method, cohort, 1, 0.5)
    start, carried = method._denoised(state, x0[0], gate, 1)
    share = 1 - problem.dim * 0.1 / (x[0] - x0[0]).square().sum()
    assert 0.5 < float(share) < 1
    torch.testing.assert_close(start[0], x0[0] + share * (x[0] - x0[0]))
    torch.testing.assert_close(start[1], x0[0])
    assert torch.equal(start[2], x[2])
    fresh = torch.from_numpy(gate.noise_std**2)[1:, None].expand(2, 3)
    torch.testing.assert_close(carried[1:], fresh)


def test_the_noise_that_is_carried_along_is_the_noise_there_is():
    """Against the spread over many clients of one record each, whose losses have no curvature: R = 0 and G → 0."""
    copies = 4000
    features = np.full((copies, 1), 1e-9)
    shards = Shards.from_flat(features, np.zeros(copies, dtype=np.int64), np.arange(copies + 1))
    problem = make_problem("logistic", 1, 1, 1.0)
    cohort = cohort_of(problem, shards)
    method = FedSPDDP(local_steps=3, batches="full", rho=RHO, gamma=GAMMA, memory="auto")
    state = {name: row.expand(copies, -1) for name, row in method.init(torch.zeros(1, dtype=torch.float64)).items()}
    x0 = torch.zeros(1, dtype=torch.float64)
    noise = torch.zeros(copies, 3, dtype=torch.float64)
    weight = float(np.mean((GAMMA / (GAMMA + RHO)) ** np.arange(1, 4)))
    for t in range(1, 5):
        gate = open_gate(method, cohort, t, 1.0)
        released = torch.from_numpy(gate.noise_std**2)
        noise = carried_noise(noise, torch.ones(copies, dtype=torch.float64), weight, released)
        whole = FedSPDDP(local_steps=3, batches="full", rho=RHO, gamma=GAMMA)
        state = whole.local_round({"x": state["x"], "dual": state["dual"]}, x0, cohort, gate, t)
        pair = torch.cat([state["x"], state["dual"] / RHO], dim=1)
        seen = (pair.T @ pair / copies).flatten()[[0, 1, 3]]
        torch.testing.assert_close(seen, noise[0], rtol=0.1, atol=0.0)


@pytest.mark.parametrize("steps", [1, 4])
def test_a_clipped_increment_bounds_the_replacement_of_a_whole_client(steps):
    """Two data sets that share no record: the averages differ by 2C at most, and by nearly that where they pull apart."""
    method = FedSPDDP(local_steps=steps, batches="full", rho=0.5, gamma=1.0, increment_clip=0.05)
    problem = make_problem("logistic", 2, 1, 1.0)
    averages = []
    for label in (0, 1):
        shards = Shards.from_flat(np.tile([1.0, 0.0], (9, 1)), np.full(9, label), np.array([0, 9]))
        cohort = cohort_of(problem, shards)
        start = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
        state = {"x": start, "dual": torch.zeros_like(start)}
        gate = open_gate(method, cohort, 1)
        averages.append(method.local_round(state, start[0], cohort, gate, 1)["x"])
        assert gate.clipped.all()
        assert float((averages[-1] - start).norm()) == pytest.approx(0.05)
    bound = method.bound(problem, np.array([9]), np.ones(1), 1)
    assert bound.sensitivity == pytest.approx(0.1)
    assert bound.clip == 0.05
    assert float((averages[0] - averages[1]).norm()) == pytest.approx(0.1)
    event = method.event(problem, 9, 1.0, 1)
    assert (type(event), event.unit, method.unit, method.status) == (GaussianEvent, "client", "client", "guaranteed")


def test_an_increment_within_the_clip_is_left_as_it_is():
    features, labels, offsets = softmax_world()
    cohort = cohort_of(make_problem("softmax", P, CLASSES, 1.0), Shards.from_flat(features, labels, offsets))
    state = {
        "x": torch.zeros(3, P * CLASSES, dtype=torch.float64),
        "dual": torch.zeros(3, P * CLASSES, dtype=torch.float64),
    }
    wide, free = FedSPDDP(local_steps=2, batch_size=2, increment_clip=1e6), FedSPDDP(local_steps=2, batch_size=2)
    x0 = torch.ones(P * CLASSES, dtype=torch.float64)
    got, expected = (m.local_round(state, x0, cohort, open_gate(m, cohort, 1), 1) for m in (wide, free))
    torch.testing.assert_close(got, expected)
    assert free.unit == "record"


def shift_of_average(method, gap_record, far):
    """‖x̄ − x̄'‖ for two data sets that differ in record 0, from the same state and with the same batches."""
    size = 12
    averages = []
    for flipped in (False, True):
        features = np.tile([1.0, 0.0], (size, 1))
        labels = np.ones(size, dtype=np.int64)
        if flipped:
            features[0], labels[0] = gap_record
        shards = Shards.from_flat(features, labels, np.array([0, size]))
        cohort = cohort_of(make_problem("logistic", 2, 1, 1.0), shards)
        start = torch.tensor([[far, 0.0]], dtype=torch.float64)
        rows = {"x": start, "dual": torch.zeros_like(start)}
        x0 = start[0]
        averages.append(method.local_round(rows, x0, cohort, open_gate(method, cohort, 1), 1)["x"])
    return float(torch.linalg.vector_norm(averages[0] - averages[1]))


@pytest.mark.parametrize("batches", ["epoch", "independent", "full"])
def test_sensitivity_bounds_neighbours_and_is_nearly_reached(batches):
    """A saturated logistic loss has no curvature and gradients of norm G: (D1) and (D2) are reached up to a factor 2,
    since here one of the two gradients vanishes."""
    method = FedSPDDP(local_steps=3, batch_size=4, batches=batches, rho=0.5, gamma=2.0)
    problem = make_problem("logistic", 2, 1, 1.0)
    bound = method.bound(problem, np.array([12]), np.ones(1), 1).sensitivity[0]
    worst = max(
        shift_of_average(method, ((np.cos(angle), np.sin(angle)), label), far)
        for angle in np.linspace(0, 2 * np.pi, 17)
        for label in (0, 1)
        for far in (0.0, 40.0, -40.0)
    )
    assert worst <= bound * (1 + 1e-12)
    if batches == "full":
        assert worst >= 0.45 * bound


def test_sensitivity_formulas():
    problem = make_problem("softmax", P, CLASSES, 1.0)
    g, sizes, ones = problem.gradient_bound, np.array([40, 90]), np.ones(2)
    c, kappa = 2 * g / (4 * (2.0 + 0.5)), 2.0 / 2.5
    common = {"local_steps": 3, "batch_size": 4, "rho": 0.5, "gamma": 2.0}
    epoch = FedSPDDP(**common).bound(problem, sizes, ones, 1).sensitivity
    assert epoch == pytest.approx(c / 3 * (1 + kappa + kappa**2))
    s = [c, c + kappa * c, c + kappa * (c + kappa * c)]
    assert FedSPDDP(**common, batches="independent").bound(problem, sizes, ones, 1).sensitivity == pytest.approx(
        sum(s) / 3
    )
    assert FedSPDDP(**common, batches="iid").bound(problem, sizes, ones, 1).sensitivity == pytest.approx(4 * sum(s) / 3)
    full = FedSPDDP(**common, batches="full").bound(problem, sizes, ones, 1).sensitivity
    assert full == pytest.approx(sum(s) / 3 * 4 / sizes)
    assert FedSPDDP(**common, state="paper").bound(problem, sizes, ones, 1).sensitivity == pytest.approx(2 * epoch)
    assert FedSPDDP(**common).bound(problem, sizes, 3 * ones, 1).sensitivity == pytest.approx(3 * epoch)


def test_a_small_gamma_expands():
    """With γ < L/2 a step may expand: κ = γ(L/γ − 1)/(γ + ρ)."""
    problem = make_problem("softmax", P, CLASSES, 2.0)
    assert problem.smoothness == pytest.approx(2.0)
    assert FedSPDDP(gamma=0.5, rho=0.5).contraction(problem, 1.0, 1) == pytest.approx(0.5 * 3 / 1.0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rho", 0.0),
        ("rho", float("nan")),
        ("gamma", -1.0),
        ("gamma", [1.0, 0.5]),
        ("gamma", {"value": 1.0, "shape": "cubic"}),
        ("rounds", 0),
        ("local_steps", 0),
        ("batch_size", 0),
        ("participants", 0),
        ("memory", 1.5),
        ("memory", float("nan")),
        ("increment_clip", 0.0),
        ("increment_clip", float("inf")),
    ],
)
def test_parameters_are_checked(field, value):
    with pytest.raises(InvalidValue, match=f"method.{field}"):
        FedSPDDP(**{field: value})


@pytest.mark.parametrize("changes", [{"memory": "auto"}, {"memory": 0.5}, {"increment_clip": 1.0}])
def test_the_published_form_takes_neither(changes):
    with pytest.raises(InvalidValue, match="released"):
        FedSPDDP(state="paper", **changes)


def test_epoch_batches_need_enough_records():
    problem = make_problem("softmax", P, CLASSES, 1.0)
    with pytest.raises(InvalidValue, match="client 1 has 20"):
        FedSPDDP(local_steps=5, batch_size=10).validate(problem, np.array([50, 20]), np.ones(2), True)
    with pytest.raises(InvalidValue, match=r"method.batch_size"):
        FedSPDDP(batch_size=21, batches="independent").validate(problem, np.array([50, 20]), np.ones(2), True)


def test_an_unbounded_gradient_is_refused_where_privacy_is_asked_for():
    problem = make_problem("least-squares", P, 1, 1.0)
    method = FedSPDDP(local_steps=2, batch_size=2)
    with pytest.raises(InvalidValue, match=r"problem.clip"):
        method.validate(problem, np.array([50]), np.ones(1), True)
    method.validate(problem, np.array([50]), np.ones(1), False)
