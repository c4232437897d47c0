"""The ledger's actor asked by others while its run goes on, and the gauges that Ray exports of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from dualfed.actors.cluster import local_cluster
from dualfed.actors.ledger_actor import NAMESPACE, RayLedger, actor_name, start_ledger
from dualfed.actors.ledger_desk import LedgerGone
from dualfed.actors.ledger_link import LedgerLink
from dualfed.actors.line import LineGone
from dualfed.errors import InvalidValue
from dualfed.privacy.ledger import Ledger as Journalled
from dualfed.runs.ledger_client import Ledger
from dualfed.runs.simulate import simulate

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with local_cluster(2):
        yield


class Asking:
    """A run in the cluster, and somebody who asks its ledger's actor until it is over."""

    def __init__(self, config, folder):
        self.folder = folder
        self.rounds = threading.Event()
        self.failure = None
        self._thread = threading.Thread(target=self._run, args=(config,))

    def _run(self, config):
        try:
            simulate(config, out=self.folder, listen=self._heard)
        except BaseException as error:
            self.failure = error
        finally:
            self.rounds.set()

    def _heard(self, event):
        if event["kind"] == "round" and event["round"] >= 3:
            self.rounds.set()

    def __enter__(self):
        self._thread.start()
        assert self.rounds.wait(120)
        return self

    def __exit__(self, *_):
        self._thread.join(120)
        assert self.failure is None


def test_the_actor_answers_while_rounds_go_on(small, tmp_path):
    config = small(engine="ray", actors__clients_per_actor=4, method__rounds=1200, privacy__budget=300.0)
    rounds, losses, names = [], [], []
    with Asking(config, tmp_path / "run"):
        with Ledger.connect(tmp_path / "run", address="auto") as ledger:
            about = ledger.about()
            names.append(about["ledger"])
            assert about["state"] == "running"
            while ledger.state == "running" and (len(rounds) < 20 or rounds[-1] < rounds[0] + 10):
                summary = ledger.summary()
                rounds.append(summary.round)
                losses.append(summary.epsilon)
            assert ledger.table().participations.sum() > 0
            assert ledger.history(0)
            assert ledger.what_if(rounds=5).rounds.tolist() == [5.0] * 7
            assert ledger.events()[0]["kind"] == "started"
            with pytest.raises(InvalidValue, match="client"):
                ledger.epsilon(7)
            heard = []
            for event in ledger.subscribe(0, charges=True):
                heard.append(event["kind"])
        with Ledger.connect(tmp_path / "run") as journal:
            assert journal.events()[-1]["kind"] in ("ended", "evaluated", "round")
    assert rounds == sorted(rounds)
    assert rounds[-1] > rounds[0]
    assert losses == sorted(losses)
    assert heard.count("round") > 0
    assert heard.count("charged") > 0
    assert names == [{"name": actor_name(about["run"]), "namespace": NAMESPACE}]
    same_journal_as_without_questions(config, tmp_path)


def same_journal_as_without_questions(config, tmp_path):
    quiet = simulate(config, out=tmp_path / "quiet")
    asked = Journalled.open_readonly(tmp_path / "run" / "ledger.sqlite")
    assert [loss.epsilon for loss in asked.epsilon()] == quiet.clients["epsilon"].tolist()
    asked.close()


@pytest.fixture
def beside(tmp_path):
    """A ledger of five clients and three rounds, started as a run does: what it was told to open, and its actor."""
    import ray
    from dualfed.actors.job import LedgerSpec
    from dualfed.actors.plan import Plan
    from dualfed.privacy.events import EpochEvent

    plan = Plan(
        [np.arange(5)] * 3,
        [EpochEvent(noise_multiplier=1.0, rate=0.1, steps=5, contraction=0.9)],
        np.ones(1),
        np.ones(5),
        1e-5,
        None,
        np.full((5, 1), 3),
        np.zeros(5, np.int64),
        np.zeros(3, np.int64),
        np.zeros((1, 1), np.int64),
    )
    facts = {"method": "m", "status": "guaranteed", "unit": "record", "mode": "none", "run": "beside"}
    spec = LedgerSpec(str(tmp_path / "ledger.sqlite"), 5, plan, facts)
    actor = start_ledger(spec, ray.get_runtime_context().get_node_id())
    yield spec, actor
    ray.kill(actor)


def charged(actor, round):
    """The ledger's port, after every client was charged for a round."""
    port = RayLedger(actor)
    grants, _ = port.collect(port.reserve(round, np.arange(5), np.zeros(5, np.int64)))
    assert len(grants) == 5
    return port


def test_a_charge_does_not_wait_for_a_question(beside):
    """A question that never ends blocks its own thread; charges go on beside it."""
    import ray

    spec, actor = beside
    slow = [actor.ask.remote("what_if", {"rounds": 10 + k, "budget": 50.0}) for k in range(3)]
    for t in (1, 2, 3):
        charged(actor, t)
    assert ray.get(actor.ask.remote("summary", {})).releases in (0, 5, 10, 15)
    assert all(answer.delta == 1e-5 for answer in ray.get(slow))
    again = start_ledger(spec, ray.get_runtime_context().get_node_id())
    assert ray.get(again.ask.remote("summary", {})).releases == 15, "the one before gave way, its charges stand"
    ray.kill(again)


def newest(link, releases):
    """The answers of a link once they are of so many releases: a copy may be behind for a moment."""
    deadline = time.monotonic() + 60
    while (summary := link.ask("summary")).releases != releases and time.monotonic() < deadline:
        time.sleep(0.05)
    return summary


@pytest.mark.parametrize("machine", ["same", "other"])
def test_answers_are_the_same_on_the_line_and_through_ray_also_after_a_loss(beside, monkeypatch, machine):
    _, actor = beside
    port = charged(actor, 1)
    if machine == "other":
        monkeypatch.setattr("dualfed.actors.ledger_link.Line", unreachable)
    link = LedgerLink(None, "beside")
    try:
        assert link.near is (machine == "same")
        first = newest(link, 5)
        assert link.ask("spent", client=2).epsilon == first.epsilon > 0
        with pytest.raises(InvalidValue, match="client"):
            link.ask("spent", client=5)
        os.kill(port.process(), signal.SIGKILL)
        assert link.ask("summary").epsilon == first.epsilon, "the restarted ledger answers from its journal"
        assert link.near is (machine == "same")
        charged(actor, 2)
        assert newest(link, 10).epsilon > first.epsilon
    finally:
        link.close()


def unreachable(name):
    raise LineGone(f"{name} is on another machine")


def test_a_link_says_when_the_ledger_has_gone(beside):
    import ray

    _, actor = beside
    charged(actor, 1)
    link = LedgerLink(None, "beside")
    ray.kill(actor)
    with pytest.raises(LedgerGone, match="its run is over"):
        newest(link, -1)


def test_who_asks_after_closing_is_told_so(beside):
    _, actor = beside
    charged(actor, 1)
    link, other = LedgerLink(None, "beside"), LedgerLink(None, "beside")
    link.close()
    with pytest.raises(LedgerGone, match="was closed here; connect again"):
        link.ask("summary")
    assert newest(other, 5).releases == 5
    other.close()


LEFT = """
import sys
import ray
from dualfed.actors.ledger_desk import LedgerGone
from dualfed.actors.ledger_link import LedgerLink
joined, beside = LedgerLink(sys.argv[1], "beside"), LedgerLink(sys.argv[1], "beside")
joined.close()
beside._line = None  # as on another machine
for link in (joined, beside):
    try:
        link.ask("summary")
    except LedgerGone as error:
        print(error)
print("a cluster was started" if ray.is_initialized() else "no cluster")
"""


def test_no_cluster_is_started_for_who_asks_after_leaving_one(beside):
    """Ray connects by itself whoever is not connected, and where it finds no cluster it starts one."""
    import ray

    address = ray.get_runtime_context().gcs_address
    done = subprocess.run([sys.executable, "-c", LEFT, address], capture_output=True, text=True, timeout=120)
    assert done.stdout.count("was closed here; connect again") == 2, done.stderr
    assert done.stdout.endswith("no cluster\n")


def test_nobody_there_is_one_sentence(tmp_path):
    with pytest.raises(InvalidValue, match="no such run goes on"):
        Ledger.connect("nothing", address="auto")


SCRAPE = """
import json, socket, sys, threading, time, urllib.request
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
import ray
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, _metrics_export_port=port)
from dualfed import simulate
seen, over = {}, threading.Event()
def scrape():
    while not over.wait(0.3):
        try:
            text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).read().decode()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith("ray_dualfed_"):
                assert 'status="guaranteed"' in line and 'name="scraped"' in line, line
                seen[line.split("{")[0].removeprefix("ray_dualfed_")] = float(line.rsplit(" ", 1)[1])
thread = threading.Thread(target=scrape)
thread.start()
simulate(json.loads(sys.argv[1]), keep=False)
deadline = time.monotonic() + 60
while seen.get("rounds_done") != 600 and time.monotonic() < deadline:
    time.sleep(0.3)
over.set()
thread.join()
print(json.dumps(seen))
"""


@pytest.mark.slow
def test_gauges_can_be_scraped(small):
    """In a process of its own: Ray reads whether to collect metrics when it is imported."""
    pytest.importorskip("opentelemetry.exporter.prometheus", reason="needs ray[default]")
    config = small(
        name="scraped",
        engine="ray",
        actors__clients_per_actor=4,
        method__rounds=600,
        privacy__budget=60.0,
        evaluate_every=50,
    )
    environment = {**os.environ, "RAY_enable_metrics_collection": "1", "RAY_metrics_report_interval_ms": "500"}
    done = subprocess.run(
        [sys.executable, "-c", SCRAPE, json.dumps(config)], capture_output=True, text=True, env=environment, timeout=200
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["epsilon_budget"] == 60.0
    assert seen["rounds_done"] == 600
    assert 0 < seen["epsilon_spent"] <= 60.0
    assert (seen["hosts_lost"], seen["refusals"]) == (0, 0)
