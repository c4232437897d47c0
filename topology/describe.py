"""A graph in numbers."""

from __future__ import annotations

from typing import Any

import networkx as nx

from .spectrum import spectrum
from .stability import LIMIT


def describe(g: nx.Graph) -> dict[str, Any]:
    """What a person asks about a connected graph on 0..N−1 before running on it.

    Returns ``kind`` (where the graph says so), ``n``, ``edges``, ``degree_min``, ``degree_mean``, ``degree_max``,
    ``lambda_2``, ``lambda_max``, ``spectral_gap`` (of the Metropolis matrix), ``diameter`` (None above 2000 nodes),
    ``largest_a_rho`` = 8/(3 λ_max), below which a·ρ = ταβρ is stable (None for N = 1), and ``messages_per_round``, 2|E|
    vectors of d numbers (Z9).
    """
    facts = spectrum(g)
    degrees = [degree for _, degree in g.degree()]
    edges = g.number_of_edges()
    return {
        "kind": g.graph.get("kind"),
        "n": facts.n,
        "edges": edges,
        "degree_min": min(degrees),
        "degree_mean": 2 * edges / facts.n,
        "degree_max": max(degrees),
        "lambda_2": facts.lambda_2,
        "lambda_max": facts.lambda_max,
        "spectral_gap": facts.spectral_gap,
        "diameter": facts.diameter,
        "largest_a_rho": LIMIT / facts.lambda_max if facts.lambda_max > 0 else None,
        "messages_per_round": 2 * edges,
    }
