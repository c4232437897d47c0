"""What the columns of a run's metrics mean, for a reader."""

from __future__ import annotations

MEANINGS: dict[str, str] = {
    "accuracy_clients": "accuracy of the clients' own models, mean",
    "accuracy_worst": "accuracy of the clients' own models, worst",
    "accuracy_best": "accuracy of the clients' own models, best",
    "consensus": "mean squared distance of the clients' models from their mean",
    "queries": "function values asked for, all clients",
    "scalars": "numbers sent between neighbours",
    "refused": "clients refused by the ledger",
    "lost": "clients lost in a round",
}
