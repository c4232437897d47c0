"""A cluster of three nodes on this machine: the numbers of one node, and nodes that are lost with all they held."""

from __future__ import annotations

import contextlib
import re
import time

import numpy as np
import psutil
import pytest
import ray
from dualfed.actors.nodes import head_node, nodes
from dualfed.privacy.ledger import Ledger
from dualfed.runs.simulate import simulate
from ray.cluster_utils import Cluster

pytestmark = [pytest.mark.ray, pytest.mark.slow]

_NOTICE_SOON = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture(scope="module")
def cluster():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_enable_metrics_collection", "0")
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": _NOTICE_SOON}
        made = Cluster(initialize_head=True, head_node_args=head)
        for _ in range(2):
            made.add_node(num_cpus=1)
        ray.init(address=made.address, log_to_driver=False)
        yield made
        ray.shutdown()
        made.shutdown()


class LoseNodes:
    """Kills nodes other than the head, without a word to anyone, once their rounds are done."""

    def __init__(self, cluster, *rounds):
        self._cluster, self._rounds = cluster, list(rounds)

    def __call__(self, event):
        if event["kind"] == "round" and self._rounds and event["round"] == self._rounds[0]:
            self._rounds.pop(0)
            lost = self._cluster.list_all_nodes()[-1]
            raylet = next(one.process for one in lost.all_processes["raylet"])
            there = psutil.Process(raylet.pid).children(recursive=True)
            self._cluster.remove_node(lost, allow_graceful=False)
            # Its hosts follow the node by and by; the whole node is gone at once here.
            for process in there:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()


def restored(cluster):
    while len(cluster.list_all_nodes()) < 3:
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_three_nodes_give_the_numbers_of_one(kind, cluster, request, tmp_path):
    restored(cluster)
    make = request.getfixturevalue(kind)
    alone = simulate(make(actors__clients_per_actor=1), keep=False)
    away = set()

    def look(event):
        if event["kind"] == "round" and event["round"] == 2:
            away.update(path.name for path in (tmp_path / "run" / "state").iterdir())

    spread = simulate(
        make(engine="ray", actors__clients_per_actor=2, checkpoint_every=3), out=tmp_path / "run", listen=look
    )
    assert len(nodes()) == 3
    assert head_node().head
    assert len(away) == 4, "the states of every host are in its file or in the mirror's"
    for table in ("metrics", "diagnostics"):
        one, other = getattr(alone, table), getattr(spread, table)
        np.testing.assert_allclose(one.to_numpy(float), other.to_numpy(float), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(alone.model, spread.model, rtol=1e-5, atol=1e-12)
    assert alone.clients["epsilon"].tolist() == spread.clients["epsilon"].tolist()
    assert len(list((tmp_path / "run" / "checkpoint").glob("round-*/clients-*"))) == 4


@pytest.mark.parametrize("kind", ["small", "graph_run"])
def test_two_nodes_are_lost_with_their_disks_and_the_run_completes(kind, cluster, request, tmp_path):
    """What is lost is the releases of the hosts that were there, in the round in which it is noticed; charges stand."""
    restored(cluster)
    make = request.getfixturevalue(kind)
    rounds = 24
    changes = {"method__mixing_rounds": 0, "method__final_mixing": 0} if kind == "graph_run" else {}
    config = make(
        engine="ray",
        actors__clients_per_actor=2,
        method__rounds=rounds,
        privacy__mode="noise-multiplier",
        privacy__noise_multiplier=2.0,
        record_states=True,
        # Rounds that take their time: the run must not be over before the second node is away.
        time__clock="real",
        time__compute="constant",
        time__mean_s=0.5,
        **changes,
    )
    result = simulate(config, out=tmp_path / "run", listen=LoseNodes(cluster, 6, 12))
    assert result.ending == "completed"
    for _ in range(100):  # the cluster notices by and by that a node is silent
        if len(nodes()) == 1:
            break
        time.sleep(0.1)
    assert len(nodes()) == 1
    lost = result.events[result.events["kind"] == "lost"]
    assert len(lost) >= 2
    silent = [
        (int(t), int(client))
        for t, detail in zip(lost["round"], lost["detail"])
        for client in re.findall(r"\d+", detail.split("clients: ")[1].split("]")[0])
    ]
    planned = sum(4 if kind == "small" else 7 for _ in range(rounds))
    assert result.timing["released"].sum() == planned - len(silent)
    ledger = Ledger.open_readonly(tmp_path / "run" / "ledger.sqlite")
    assert ledger.participations.sum() == planned, "the charge of a lost release stands, and nothing is charged twice"
    ledger.close()

    # A lost client's state is what it last released: it did not move in the round of the loss, and all went on from there.
    x = result.states["x"]
    if kind == "small":
        for t, client in silent:
            assert (x[t - 1, client] == x[t - 2, client]).all()
        upload, x0 = result.states["upload"], result.states["x0"]
        np.testing.assert_allclose(upload.mean(axis=1), x0, rtol=1e-9, atol=1e-12)
        assert np.abs(np.diff(x, axis=0)).max() > 0
    else:
        # Σ_i y_i = 0 is what the exchange keeps, and what a state from another round would break.
        drift = np.abs(result.states["y"].sum(axis=1)).max()
        assert drift < 1e-9 * max(1.0, np.abs(result.states["y"]).max())
