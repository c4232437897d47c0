"""Small runs over a graph, the optimum of their problem, and the pieces to compute their equations again in numpy."""

from __future__ import annotations

import numpy as np
from dualfed.runs.config import parse
from dualfed.runs.prepare import Given, prepare
from scipy.optimize import minimize

CLIENTS = 6
WEIGHT = 0.1


def config(name, *, mode="none", topology="erdos-renyi", weight=WEIGHT, **method):
    return {
        "seed": 2,
        "engine": "inline",
        "evaluate_every": 1000,
        "record_states": True,
        "data": {"name": "synthetic", "records": 90, "features": 4, "classes": 3},
        "partition": {"clients": CLIENTS, "scheme": "dirichlet", "alpha": 1.0, "min_size": 6},
        "topology": {"kind": topology},
        "problem": {"regulariser": "l2", "weight": weight} if weight else {},
        "method": {"name": name, **method},
        "privacy": {"mode": mode},
    }


class Local:
    """The records of each client of a run, and softmax written out."""

    def __init__(self, given, folder):
        self.prepared = prepare(parse(given), folder, Given())
        self.problem, self.method, self.graph = self.prepared.problem, self.prepared.method, self.prepared.graph
        self.weight = given["problem"].get("weight", 0.0)
        self.clients = len(self.prepared.sizes)
        self.records = {}
        for spec, shard in zip(self.prepared.job.specs, self.prepared.job.shards):
            for row, client in enumerate(spec.clients):
                rows = slice(shard.offsets[row], shard.offsets[row + 1])
                self.records[int(client)] = shard.features[rows], shard.labels[rows]

    def loss(self, i, x):
        features, labels = self.records[i]
        s = features @ x.reshape(self.problem.n_outputs, -1).T
        s = s - s.max(1, keepdims=True)
        return float(np.mean(np.log(np.exp(s).sum(1)) - s[np.arange(len(s)), labels]))

    def gradient(self, i, x):
        """∇f_i, without R."""
        features, labels = self.records[i]
        s = features @ x.reshape(self.problem.n_outputs, -1).T
        p = np.exp(s - s.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(p)), labels] -= 1
        return (p.T @ features / len(p)).ravel()

    def whole(self, i, x):
        """∇(f_i + R)."""
        return self.gradient(i, x) + self.weight * x

    def stacked(self, x, gradient=None):
        return np.stack([(gradient or self.whole)(i, x[i]) for i in range(self.clients)])

    def argmin(self, i, quadratic, linear):
        """argmin f_i(x) + (quadratic/2)‖x‖² + ⟨linear, x⟩ by BFGS and Newton steps with a numerical Hessian."""

        def value(x):
            return self.loss(i, x) + quadratic / 2 * x @ x + linear @ x

        def slope(x):
            return self.gradient(i, x) + quadratic * x + linear

        x = minimize(value, np.zeros(self.problem.dim), jac=slope, method="BFGS", options={"gtol": 1e-7}).x
        for _ in range(4):
            hessian = np.stack([(slope(x + 1e-6 * e) - slope(x - 1e-6 * e)) / 2e-6 for e in np.eye(len(x))])
            x = x - np.linalg.solve(hessian, slope(x))
        assert np.linalg.norm(slope(x)) < 1e-11
        return x

    def optimum(self):
        """x* of (P1)."""

        def value(x):
            return np.mean([self.loss(i, x) for i in range(self.clients)]) + self.weight / 2 * x @ x

        def slope(x):
            return np.mean([self.whole(i, x) for i in range(self.clients)], axis=0)

        x = minimize(value, np.zeros(self.problem.dim), jac=slope, method="BFGS", options={"gtol": 1e-7}).x
        for _ in range(4):
            hessian = np.stack([(slope(x + 1e-6 * e) - slope(x - 1e-6 * e)) / 2e-6 for e in np.eye(len(x))])
            x = x - np.linalg.solve(hessian, slope(x))
        assert np.linalg.norm(slope(x)) < 1e-12
        return x

    def metropolis(self):
        w = np.zeros((self.clients, self.clients))
        for i, j in self.graph.edges():
            w[i, j] = w[j, i] = 1 / (1 + max(self.graph.degree(i), self.graph.degree(j)))
        return w + np.diag(1 - w.sum(1))
