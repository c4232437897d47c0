"""ADMM over a graph: two published forms again in numpy, sensitivities on neighbouring data, what a round costs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from dualfed.algorithms import conformance_graph
from dualfed.algorithms.local_argmin import NotSolved, minimise
from dualfed.algorithms.method import Cohort
from dualfed.algorithms.problems import make_problem
from dualfed.algorithms.registry import make_method, method_table
from dualfed.algorithms.regularisers import L2, NoRegulariser
from dualfed.algorithms.shards import Shards
from dualfed.errors import InvalidValue
from dualfed.keys import generator, noise_key
from dualfed.privacy.accountants import Accountant
from dualfed.privacy.events import PureEvent
from dualfed.privacy.gate import Bound, Granted, GrantMissing, NoiseGate
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import simulate

from .graph_runs import CLIENTS, Local, config

ROUNDS, ETA = 6, 0.4
PLAIN = {"dvp-admm": {}, "pvp-admm": {}, "penalty-admm": {"growth": 1.0}}


def skeleton(local, rounds, eta=ETA, growth=1.0, theta=None, gamma=None):
    """(A1, A2) as written, each sum over neighbours on its own; with ``gamma`` every second round is linearised."""
    nodes, d = range(local.clients), local.problem.dim
    x, dual, theta = np.zeros((local.clients, d)), np.zeros((local.clients, d)), theta or eta
    found = []
    for t in range(1, rounds + 1):
        new, penalty = np.empty_like(x), eta * growth ** (t - 1)
        for i in nodes:
            near = list(local.graph[i])
            if gamma is not None and t % 2 == 0:
                slope = local.whole(i, x[i]) + 2 * dual[i] + eta * sum(x[i] - x[j] for j in near)
                new[i] = x[i] - slope / (2 * eta * len(near) + gamma)
                continue
            linear = 2 * dual[i] - penalty * sum(x[i] + x[j] for j in near)
            new[i] = local.argmin(i, local.weight + 2 * penalty * len(near), linear)
        x = new
        dual = dual + theta / 2 * np.stack([sum(x[i] - x[j] for j in local.graph[i]) for i in nodes])
        found.append(x)
    return np.array(found)


def consensus(local, rounds, rho):
    """Consensus ADMM with edge variables: x_i = prox of Σ_j z_ij/(ρd_i), z_ij ← ½(z_ij − z_ji + 2ρx_j)."""
    nodes = range(local.clients)
    z = {(i, j): np.zeros(local.problem.dim) for i in nodes for j in local.graph[i]}
    found = []
    for _ in range(rounds):
        degrees = [local.graph.degree(i) for i in nodes]
        x = np.stack(
            [local.argmin(i, local.weight + rho * degrees[i], -sum(z[i, j] for j in local.graph[i])) for i in nodes]
        )
        z = {(i, j): 0.5 * (z[i, j] - z[j, i] + 2 * rho * x[j]) for i, j in z}
        found.append(x)
    return np.array(found)


@pytest.mark.parametrize("name", PLAIN)
def test_without_noise_all_are_the_published_skeleton(name, tmp_path):
    given = config(name, rounds=ROUNDS, eta=ETA, **PLAIN[name])
    local = Local(given, tmp_path)
    expected = skeleton(local, ROUNDS)
    result = simulate({**given, "actors": {"clients_per_actor": 4}}, keep=False)
    np.testing.assert_allclose(result.states["x"], expected, atol=1e-8)
    assert np.ptp(expected[-1], axis=0).max() > 1e-3


def test_the_skeleton_is_consensus_admm_over_edges(tmp_path):
    """With ρ = 2η and equal starts the edge form of the same method goes through the same points."""
    given = config("dvp-admm", rounds=ROUNDS, eta=ETA)
    expected = consensus(Local(given, tmp_path), ROUNDS, 2 * ETA)
    np.testing.assert_allclose(simulate(given, keep=False).states["x"], expected, atol=1e-8)


def test_growing_penalties_and_a_dual_step_of_their_own_are_as_published(tmp_path):
    given = config("penalty-admm", rounds=ROUNDS, eta=ETA, growth=1.3, theta=0.2)
    expected = skeleton(Local(given, tmp_path), ROUNDS, growth=1.3, theta=0.2)
    np.testing.assert_allclose(simulate(given, keep=False).states["x"], expected, atol=1e-8)


def test_every_client_may_have_its_own_penalty(tmp_path):
    same, own = (
        simulate(config("penalty-admm", rounds=4, eta=eta, theta=0.2), keep=False).model
        for eta in ([ETA] * CLIENTS, [ETA] * (CLIENTS - 1) + [2 * ETA])
    )
    assert np.abs(same - own).max() > 1e-4
    one = simulate(config("penalty-admm", rounds=4, eta=ETA, theta=0.2), keep=False).model
    np.testing.assert_allclose(same, one, atol=1e-12)
    with pytest.raises(InvalidValue, match=r"method\.eta.*one for each of the 6 clients"):
        simulate(config("penalty-admm", eta=[1.0, 2.0]), keep=False)


def test_recycled_rounds_are_as_published(tmp_path):
    """The even rounds' gradient, read off released values, is ∇O_i at the odd round's point."""
    given = config("recycled-admm", rounds=ROUNDS, eta=ETA, gamma=1.5)
    expected = skeleton(Local(given, tmp_path), ROUNDS, gamma=1.5)
    np.testing.assert_allclose(simulate(given, keep=False).states["x"], expected, atol=1e-8)


@pytest.mark.parametrize("name", [*PLAIN, "recycled-admm"])
def test_without_noise_they_reach_the_centralised_optimum(name, tmp_path):
    given = config(name, rounds=160, eta=0.2, weight=0.5, **PLAIN.get(name, {})) | {"record_states": False}
    x = Local(given, tmp_path).optimum()
    result = simulate(given, keep=False)
    assert np.linalg.norm(result.model - x) < 1e-7
    assert result.metrics["consensus"].iloc[-1] < 1e-13


def world(kind, seed=0, m=8, p=3, norm=1.0, weight=0.3):
    draw = generator(b"admm", kind, round=seed)
    features = draw.standard_normal((m, p))
    features *= norm / np.linalg.norm(features, axis=1, keepdims=True)
    classes = 3 if kind == "softmax" else 2
    problem = make_problem(
        kind, p, classes if kind == "softmax" else 1, norm, L2(weight) if weight else NoRegulariser()
    )
    return problem, features, draw.integers(0, classes, m)


def cohort_of(problem, features, labels):
    shards = Shards.from_flat(features, labels, np.array([0, len(labels)]))
    one = np.zeros(1, dtype=np.int64)
    return Cohort(problem, shards, torch.zeros(1, dtype=torch.int64), one, np.array([len(labels)]), np.ones(1))


def neighbours(problem, features, labels, seed):
    """The same records with one replaced, by its opposite or at random."""
    draw = generator(b"admm", "neighbour", round=seed)
    other, marks = features.copy(), labels.copy()
    record = int(draw.integers(len(labels)))
    fresh = draw.standard_normal(features.shape[1])
    other[record] = -features[record] if seed % 2 else fresh / np.linalg.norm(fresh) * problem.record_norm
    marks[record] = (labels[record] + 1) % (problem.n_outputs if problem.n_outputs > 1 else 2)
    return other, marks


def on_path(name, problem, **fields):
    method = make_method({"name": name, **fields})
    return method.settle(conformance_graph.path_network(), problem, np.array([8, 8, 8]))[0]


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
def test_minimisers_of_neighbours_are_as_near_as_the_bound_says(kind):
    worst = 0.0
    for seed in range(30):
        problem, features, labels = world(kind, seed)
        method = on_path("pvp-admm", problem, eta=0.05)
        (bound,) = method.bound_at(problem, np.array([8]), np.ones(1), np.zeros(1, int), 1).sensitivity
        linear = torch.from_numpy(0.3 * generator(b"admm", "linear", round=seed).standard_normal((1, problem.dim)))
        state = {"x": torch.zeros(1, problem.dim, dtype=torch.float64)}
        sides = [
            method.solve(state, linear, cohort_of(problem, *records), 1, relative=False)
            for records in ((features, labels), neighbours(problem, features, labels, seed))
        ]
        worst = max(worst, float(torch.linalg.vector_norm(sides[0] - sides[1])) / bound)
    assert 0.2 < worst <= 1.0


def log_density(problem, cohort, x, zeta, convexity, linear):
    """ln p(x), up to a constant of the pair, of the minimiser under b with density ∝ exp(−ζ‖b‖): the change of variables
    with the Hessian by autograd, nothing of the method's own."""
    features, labels = cohort.shards.features, cohort.shards.labels

    def objective(flat):
        scores = flat.reshape(problem.n_outputs, -1) @ features.T
        if problem.n_outputs == 1:
            losses = torch.log1p(torch.exp((1 - 2 * labels) * scores[0]))
        else:
            losses = torch.logsumexp(scores, 0) - scores[labels, torch.arange(len(labels))]
        return losses.mean() + convexity / 2 * flat @ flat + linear @ flat

    slope = torch.func.grad(objective)(x)
    hessian = torch.func.hessian(objective)(x)
    return float(-zeta * torch.linalg.vector_norm(slope) + torch.linalg.slogdet(hessian)[1])


@pytest.mark.parametrize("kind", ["logistic", "softmax"])
@pytest.mark.parametrize("name", ["dvp-admm", "penalty-admm", "recycled-admm"])
def test_the_density_of_a_release_changes_by_no_more_than_epsilon(name, kind):
    """The exact density of the minimiser on both data sets, at points near either side's and far out."""
    epsilon, worst = 0.8, 0.0
    for seed in range(12):
        problem, features, labels = world(kind, seed, weight=0.05)
        method = on_path(name, problem, eta=0.02)
        bound = method.bound_at(problem, np.array([8]), np.ones(1), np.zeros(1, int), 1)
        (scale,) = bound.radial_scale(np.array([1 / epsilon]))
        convexity = 0.05 + 2 * 0.02 * 1
        linear = torch.from_numpy(0.1 * generator(b"admm", "linear", round=seed).standard_normal(problem.dim))
        cohorts = [cohort_of(problem, *r) for r in ((features, labels), neighbours(problem, features, labels, seed))]
        for point in range(25):
            draw = generator(b"admm", "point", client=point, round=seed)
            x = torch.from_numpy(10 ** draw.uniform(-2, 1.5) * draw.standard_normal(problem.dim))
            one, other = (log_density(problem, c, x, 1 / scale, convexity, linear) for c in cohorts)
            worst = max(worst, abs(one - other))
    assert 0.3 * epsilon < worst <= epsilon


def test_the_curvature_term_is_never_above_the_papers():
    """2 ln(1 + c/(mΛ)) for one score (Chaudhuri et al. 2011), computed here on its own; ours is half of it."""
    problem, _, _ = world("logistic")
    method = on_path("dvp-admm", problem, eta=0.1, phi=0.2)
    sizes, clients = np.array([8, 20, 50]), np.arange(3)
    bound = method.bound_at(problem, sizes, np.ones(3), clients, 1)
    strong = 0.3 + 0.2 + 2 * 0.1 * np.array([1, 2, 1])
    paper = 2 * np.log(1 + 0.25 / (sizes * strong))
    np.testing.assert_allclose(bound.curvature, paper / 2, rtol=1e-12)
    np.testing.assert_allclose(bound.sensitivity, 2 / sizes)
    epsilon = 0.5
    zeta = 1 / bound.radial_scale(np.full(3, 1 / epsilon))
    np.testing.assert_allclose(zeta * 2 / sizes + bound.curvature, epsilon)
    assert (zeta >= (epsilon - paper) * sizes / 2).all(), "never more noise than the paper's formula"


def test_radial_noise_has_its_density():
    """‖b‖ is Gamma(d, s) and the direction uniform."""
    d, clients = 7, 4000
    granted = Granted(1, np.arange(clients), np.zeros(clients, int), np.full(clients, 0.5))
    gate = NoiseGate(granted, Bound(np.full(clients, 0.6), noise="radial"), noise_key(0))
    assert not gate.noise_std.any()
    drawn = gate.release(torch.zeros(clients, d, dtype=torch.float64)).numpy()
    scale, norms = 0.6 * 0.5, np.linalg.norm(drawn, axis=1)
    assert norms.mean() == pytest.approx(d * scale, rel=0.03)
    assert norms.var() == pytest.approx(d * scale**2, rel=0.1)
    assert np.abs((drawn / norms[:, None]).mean(0)).max() < 0.03
    np.testing.assert_allclose(
        (drawn / norms[:, None]).T @ (drawn / norms[:, None]) / clients, np.eye(d) / d, atol=0.02
    )


def test_a_perturbed_objective_uses_its_grant_and_needs_its_own_bound():
    granted = Granted(1, np.zeros(1, int), np.zeros(1, int), np.ones(1))
    like = torch.zeros(1, 2, dtype=torch.float64)
    with pytest.raises(GrantMissing, match="does not cover"):
        NoiseGate(granted, Bound(np.ones(1)), noise_key(0)).release_minimiser(lambda b: b, like)
    gate = NoiseGate(granted, Bound(np.ones(1), noise="radial"), noise_key(0))
    gate.release_minimiser(lambda b: b, like)
    for again in (lambda: gate.release_minimiser(lambda b: b, like), lambda: gate.release(like)):
        with pytest.raises(GrantMissing, match="used already"):
            again()
    with pytest.raises(GrantMissing, match="curvature"):
        NoiseGate(granted, Bound(np.ones(1), noise="radial", curvature=np.ones(1)), noise_key(0))


def ledger_of(given, folder):
    result = simulate(given, out=folder)
    ledger = Ledger.open_readonly(folder / "ledger.sqlite")
    try:
        return result, list(ledger.events), ledger.counts
    finally:
        ledger.close()


@pytest.mark.parametrize("name", ["dvp-admm", "pvp-admm", "recycled-admm"])
def test_the_ledger_holds_the_pure_epsilon_of_each_charged_round(name, tmp_path):
    given = config(name, rounds=7, mode="per-round") | {"record_states": False}
    given["privacy"] |= {"epsilon": 0.9}
    result, events, counts = ledger_of(given, tmp_path / "run")
    assert [(event.kind, event.unit, event.status) for event in events] == [("pure", "record", "guaranteed")]
    assert events[0].epsilon == pytest.approx(0.9)
    charged = 4 if name == "recycled-admm" else 7
    assert counts.tolist() == [[charged]] * CLIENTS
    expected = Accountant().epsilon({PureEvent.of(0.9): charged}, 1e-5)
    assert result.epsilon == pytest.approx(expected.epsilon, rel=1e-6)
    assert result.epsilon <= charged * 0.9 + 1e-9
    assert result.metrics["round"].max() == 7


def test_a_total_budget_is_used_up_and_not_passed(tmp_path):
    for name, more in (("recycled-admm", {}), ("penalty-admm", {"growth": 1.2}), ("pvp-admm", {"noise": "gaussian"})):
        given = config(name, rounds=8, mode="total", eta=1.0, **more) | {"record_states": False}
        given["privacy"] |= {"epsilon": 6.0}
        result, _, counts = ledger_of(given, tmp_path / name)
        assert result.ending == "completed"
        assert 5.9 < result.epsilon <= 6.0
        assert counts.sum(axis=1).tolist() == [4 if name == "recycled-admm" else 8] * CLIENTS


def test_a_rounds_loss_falls_as_penalties_grow(tmp_path):
    """ε_t = ε_1/q^{t−1}; in the paper the noise's part of it is α·2G/(m·2η_i(t)d_i), with one α for all rounds."""
    growth, rounds = 1.5, 5
    given = config("penalty-admm", rounds=rounds, growth=growth, eta=1.0, mode="noise-multiplier")
    given["privacy"] |= {"noise_multiplier": 0.5}
    result, events, counts = ledger_of(given | {"record_states": False}, tmp_path / "run")
    assert counts.tolist() == [[1] * rounds] * CLIENTS
    losses = sorted((event.epsilon for event in events), reverse=True)
    np.testing.assert_allclose(losses, 2.0 / growth ** np.arange(rounds))
    assert result.epsilon <= sum(losses) + 1e-9
    local = Local(given, tmp_path / "again")
    method, sizes = local.method, local.prepared.sizes
    alphas = []
    for t in range(1, rounds + 1):
        bound = method.bound_at(local.problem, sizes, np.ones(CLIENTS), np.arange(CLIENTS), t)
        zeta = 1 / bound.radial_scale(np.full(CLIENTS, 0.5 * growth ** (t - 1)))
        alphas.append(zeta * method.pressure(np.arange(CLIENTS), t))
    assert np.ptp(np.log(alphas), axis=0).max() < 0.2, "α is all but constant, as in the paper"


def test_an_epsilon_that_the_curvature_eats_up_is_refused_before_anything_runs(tmp_path):
    given = config("dvp-admm", rounds=50, eta=0.001, weight=1e-3, mode="total")
    given["privacy"] |= {"epsilon": 0.5}
    with pytest.raises(InvalidValue, match=r"privacy\.epsilon = 0\.5.*curvature of its objective.*method\.phi"):
        simulate(given, out=tmp_path / "run")
    assert not (tmp_path / "run" / "ledger.sqlite").exists()
    given["method"]["phi"] = 50.0
    assert simulate(given, keep=False).ending == "completed"


def test_noise_changes_the_run_and_one_seed_repeats_it():
    given = config("dvp-admm", rounds=3, mode="per-round")
    given["privacy"] |= {"epsilon": 1.0}
    first, second = (simulate(given, keep=False) for _ in range(2))
    np.testing.assert_array_equal(first.model, second.model)
    assert np.abs(first.model - simulate(config("dvp-admm", rounds=3), keep=False).model).max() > 0.1


def test_single_precision_solves_in_double():
    given = config("dvp-admm", rounds=4)
    single, double = (simulate(given | {"dtype": dtype}, keep=False) for dtype in ("float32", "float64"))
    assert single.states["x"].dtype == np.float32
    np.testing.assert_allclose(single.model, double.model, atol=1e-5)


def test_a_problem_that_is_not_solved_says_so():
    problem, features, labels = world("logistic")
    cohort = cohort_of(problem, features, labels)
    like = torch.ones(1, problem.dim, dtype=torch.float64)
    with pytest.raises(NotSolved, match="client 0: after 20000 steps"):
        minimise(cohort, like, torch.ones(1), like, -1.0)


@pytest.mark.parametrize(
    ("name", "changes", "told"),
    [
        ("dvp-admm", {"problem": {"regulariser": "l1", "weight": 0.1}}, r"problem\.regulariser"),
        ("dvp-admm", {"problem": {"kind": "module"}}, r"problem\.kind"),
        ("dvp-admm", {"method": {"phi": -1.0}}, r"method\.phi"),
        ("pvp-admm", {"method": {"eta": 0.0}}, r"method\.eta"),
        ("pvp-admm", {"method": {"noise": "laplace"}}, r"method\.noise"),
        ("penalty-admm", {"method": {"growth": 0.9}}, r"method\.growth"),
        ("penalty-admm", {"method": {"growth": 100.0}}, r"method\.growth"),
        ("penalty-admm", {"method": {"theta": 0.0}}, r"method\.theta"),
        ("recycled-admm", {"method": {"gamma": 0.0}}, r"method\.gamma"),
        ("dvp-admm", {"partition": {"clients": 1}, "problem": {}}, r"problem\.weight.*without neighbours"),
    ],
)
def test_wrong_values_are_one_sentence(name, changes, told):
    given = config(name)
    for section, values in changes.items():
        given[section] = {**given[section], **values} if section == "method" else values
    with pytest.raises(InvalidValue, match=told) as caught:
        simulate(given, keep=False)
    assert "\n" not in str(caught.value)


def test_a_settled_method_is_made_again_from_its_table():
    problem, _, _ = world("logistic")
    for name in ("dvp-admm", "recycled-admm", "penalty-admm"):
        method = on_path(name, problem)
        again = make_method(method_table(method))
        assert again.settle(conformance_graph.path_network(), problem, np.array([8, 8, 8]))[0] == method
    assert math.isfinite(on_path("recycled-admm", problem).gamma)
