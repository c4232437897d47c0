"""What a run answers over HTTP: the client's own numbers, and nothing to who has no token."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from dualfed import simulate
from dualfed.errors import InvalidValue
from dualfed.runs.ledger_client import Ledger
from dualfed.runs.serve.access import token_for
from dualfed.runs.serve.app import create_app
from dualfed.runs.serve.page import FOLDER
from dualfed.runs.serve.watch import Watch
from starlette.testclient import TestClient

TOKEN = "correct-horse-battery"
CONFIG = {
    "name": "served",
    "engine": "inline",
    "seed": 3,
    "evaluate_every": 2,
    "data": {"name": "synthetic", "records": 600, "features": 5, "classes": 3},
    "partition": {"clients": 8, "min_size": 30},
    "method": {"name": "fedspd-dp", "rounds": 12, "participants": 5, "local_steps": 2, "batch_size": 10},
    "privacy": {"mode": "noise-multiplier", "noise_multiplier": 1.5, "budget": 6.0},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("served") / "run"
    simulate(CONFIG, out=out)
    return out


@pytest.fixture(scope="module")
def ledger(folder):
    with Ledger.connect(folder, load=1) as found:
        yield found


@pytest.fixture(scope="module")
def http(folder, ledger):
    with TestClient(create_app(Watch(ledger), folder, None), base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def guarded(folder, ledger):
    with TestClient(create_app(Watch(ledger), folder, TOKEN), base_url="http://example.org") as client:
        yield client


def get(http, path, **parameters):
    answer = http.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_every_clients_loss_is_the_ledgers(http, ledger):
    told, table = get(http, "/api/clients"), ledger.table()
    assert [row["client"] for row in told["clients"]] == list(range(8))
    assert [row["epsilon"] for row in told["clients"]] == table.epsilon.tolist()
    assert [row["releases"] for row in told["clients"]] == table.releases.tolist()
    assert told["exact_as_of_round"] == table.round == 12
    for row in told["clients"]:
        assert float(row["epsilon_text"].split()[0]) >= row["epsilon"]
        assert float(row["remaining_text"].split()[0]) <= row["remaining"]


def test_summary_names_the_largest(http, ledger):
    told, summary = get(http, "/api/summary"), ledger.summary()
    assert told["largest"]["epsilon"] == summary.epsilon
    assert told["largest_client"] == summary.client
    assert told["releases"] == summary.releases
    assert told["state"] == "completed"
    assert told["done"] == 12
    assert "one record" in told["sentence"]
    assert told["sentence"].startswith("guaranteed")


@pytest.mark.parametrize("column", ["epsilon", "share", "remaining", "releases", "client"])
@pytest.mark.parametrize("order", ["asc", "desc"])
def test_sorting(http, column, order):
    rows = get(http, "/api/clients", sort=column, order=order)["clients"]
    values = [row[column] for row in rows]
    assert values == sorted(values, reverse=order == "desc")
    assert len({row["client"] for row in rows}) == 8


def test_pages_and_ranges(http):
    pages = [get(http, "/api/clients", sort="epsilon", offset=k, limit=3)["clients"] for k in (0, 3, 6)]
    whole = get(http, "/api/clients", sort="epsilon")["clients"]
    assert [row for page in pages for row in page] == whole
    chosen = get(http, "/api/clients", client="1, 3-5")
    assert [row["client"] for row in chosen["clients"]] == [1, 3, 4, 5]
    assert chosen["total"] == 4
    assert get(http, "/api/clients", client="99")["total"] == 0
    assert get(http, "/api/clients", least_share=1)["total"] == 0
    assert get(http, "/api/clients", condition="lost")["total"] == 0


def test_one_client_its_history_and_what_if(http, ledger):
    one = get(http, "/api/clients/2", every=True)
    spent = ledger.epsilon(2, every=True)
    assert one["client"]["epsilon"] == spent.epsilon
    assert {each["account"]: each["epsilon"] for each in one["accounts"]} == dict(spent.alternatives)
    assert one["rounds_left"] == ledger.remaining(2).rounds
    history = get(http, "/api/clients/2/history", limit=1000)
    mine = ledger.history(2)
    assert [charge["round"] for charge in history["charges"]] == [charge.round for charge in reversed(mine)]
    assert history["total"] == len(mine) == spent.releases
    (ahead,) = get(http, "/api/what-if", client=2, rounds=5)["prospects"]
    assert ahead["epsilon"] == ledger.what_if(rounds=5, client=2).epsilon[0] > spent.epsilon
    at = get(http, "/api/clients/2", delta=1e-7)
    assert at["accounts"][0]["epsilon"] == ledger.epsilon(2, 1e-7).epsilon > spent.epsilon


def test_metrics_keep_the_private_apart(http):
    told = get(http, "/api/metrics")
    assert told["diagnostics"]["private"] is True
    assert "not a release" in told["diagnostics"]["note"]
    assert "objective" in told["diagnostics"]["columns"]
    assert told["released"]["private"] is False
    assert "objective" not in told["released"]["columns"]
    assert told["released"]["columns"]["round"] == [0, 2, 4, 6, 8, 10, 12]


def test_topology_overview_and_events(http, ledger):
    topology = get(http, "/api/topology")
    assert topology["server"]
    assert len(topology["positions"]) == 8
    assert all(0 <= x <= 1 and 0 <= y <= 1 for x, y in topology["positions"])
    drawn, exact = get(http, "/api/overview", by="epsilon"), ledger.frame()["epsilon"]
    assert drawn["status"] == "guaranteed"
    assert all(0 <= shown - epsilon <= 2e-6 for shown, epsilon in zip(drawn["values"], exact, strict=True))
    events = get(http, "/api/events")
    assert events["events"][-1]["kind"] == "ended"
    assert get(http, "/api/events", since=events["last"] + 1)["events"] == []


def test_every_answer_states_its_round(http):
    paths = get(http, "/openapi.json")["paths"]
    asked = 0
    for path in paths:
        if path.startswith("/api/") and path != "/api/stream":
            assert get(http, path.replace("{client}", "1"))["exact_as_of_round"] == 12, path
            asked += 1
    assert asked == 10


def test_stream_begins_with_how_the_run_stands(folder, ledger):
    import asyncio

    from dualfed.runs.serve.app import _changes

    watch = Watch(ledger)

    async def first():
        changes = _changes(watch)
        try:
            return await anext(changes)
        finally:
            await changes.aclose()

    text = asyncio.run(first())
    told = json.loads(text.split("data: ")[1])
    assert text.startswith("event: changed\n")
    assert (told["state"], told["done"], told["exact_as_of_round"]) == ("completed", 12, 12)


def test_prometheus(http, ledger):
    text = http.get("/metrics").text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    (worst,) = (value for name, value in lines.items() if name.startswith("dualfed_epsilon_max"))
    assert float(worst) == ledger.summary().epsilon
    assert sum(name.startswith("dualfed_epsilon{") for name in lines) == 8


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("/api/clients?sort=money", "sort = 'money'"),
        ("/api/clients?limit=0", "limit = '0'"),
        ("/api/clients?client=x-3", "client = 'x-3'"),
        ("/api/clients/2?delta=2", "delta = '2'"),
        ("/api/clients/-1", "client = '-1'"),
        ("/api/what-if?rounds=none", "rounds = 'none'"),
        ("/api/what-if?rounds=5&noise=2&budget=3", "budget"),
        ("/api/overview?by=money", "by = 'money'"),
    ],
)
def test_a_wrong_parameter_is_named_in_one_sentence(http, path, names):
    answer = http.get(path)
    assert answer.status_code == 422
    assert list(answer.json()) == ["error"]
    assert names in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "path", ["/api/clients/8", "/api/clients/99/history", "/api/what-if?client=8", "/api/nothing", "/x"]
)
def test_what_is_not_there(http, path):
    answer = http.get(path)
    assert answer.status_code == 404
    assert list(answer.json()) == ["error"]


def test_nothing_is_changed_by_other_verbs(http):
    for verb in ("POST", "PUT", "DELETE", "PATCH"):
        assert http.request(verb, "/api/summary").status_code == 405


@pytest.mark.parametrize(
    "header", [{}, {"Authorization": "Bearer wrong"}, {"Authorization": TOKEN}, {"Authorization": f"Basic {TOKEN}"}]
)
def test_without_the_token_nothing_is_told(guarded, header):
    paths = ["/api/run", "/api/clients/99", "/api/nothing", "/metrics", "/openapi.json", "/api/stream", "/nothing"]
    answers = [guarded.get(path, headers=header) for path in paths]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    assert len({tuple(sorted(answer.headers.items())) for answer in answers}) == 1


def test_with_the_token_all_is_told(guarded):
    header = {"Authorization": f"Bearer {TOKEN}"}
    assert guarded.get("/api/run", headers=header).json()["name"] == "served"
    assert guarded.get("/api/nothing", headers=header).status_code == 404


def test_the_page_itself_tells_nothing_of_a_run(guarded):
    for path in (
        "/",
        "/docs",
        *(f"/assets/{file.name}" for file in FOLDER.iterdir() if file.is_file() and file.suffix != ".py"),
    ):
        answer = guarded.get(path)
        assert answer.status_code == 200, path
        assert "served" not in answer.text or path.endswith(".js")
    assert guarded.get("/assets/__init__.py").status_code == 404
    assert guarded.get("/assets/..%2fboard.py").status_code in (401, 404)


def test_on_loopback_another_name_is_refused(http):
    assert http.get("/api/run", headers={"Host": "attacker.example"}).status_code == 400
    assert http.get("/api/run", headers={"Host": "localhost:8000"}).status_code == 200
    assert http.get("/api/run", headers={"Host": "[::1]:8000"}).status_code == 200


def test_which_token_is_demanded():
    assert token_for("127.0.0.1", None) is None
    assert token_for("localhost", None) is None
    made = token_for("0.0.0.0", None)
    assert made is not None
    assert len(made) >= 32
    assert made != token_for("0.0.0.0", None)
    assert token_for("127.0.0.1", TOKEN) == TOKEN
    for bad in ("short", "with a space in it", "", "größer-als-nötig-wäre"):
        with pytest.raises(InvalidValue, match="--token"):
            token_for("0.0.0.0", bad)


def test_the_page_needs_nothing_from_elsewhere():
    for file in Path(FOLDER).iterdir():
        if file.suffix in (".html", ".css", ".js") and not file.name.startswith("uplot"):
            text = file.read_text().replace("http://www.w3.org/2000/svg", "")
            assert "http:" not in text, file
            assert "https:" not in text, file
            assert "//cdn" not in text, file


def test_infinite_losses_are_null_with_words(tmp_path):
    config = {**CONFIG, "privacy": {"mode": "none"}}
    simulate(config, out=tmp_path / "bare")
    with Ledger.connect(tmp_path / "bare", load=1) as ledger:
        app = create_app(Watch(ledger), tmp_path / "bare", None)
        with TestClient(app, base_url="http://127.0.0.1") as http:
            row = get(http, "/api/clients")["clients"][0]
            assert math.isinf(ledger.epsilon(0).epsilon)
            assert (row["epsilon"], row["epsilon_text"]) == (None, "∞ (no noise)")
            assert "protect nobody" in get(http, "/api/summary")["sentence"]
            assert "+Inf" in http.get("/metrics").text


def test_a_claimed_loss_is_never_without_the_word(tmp_path):
    config = {**CONFIG, "method": {**CONFIG["method"], "state": "paper"}}
    simulate(config, out=tmp_path / "paper")
    with Ledger.connect(tmp_path / "paper", load=1) as ledger:
        told = [event for event in ledger.subscribe(0) if "epsilon_max" in event]
        assert {event["status"] for event in told} == {"claimed"}
        app = create_app(Watch(ledger), tmp_path / "paper", None)
        with TestClient(app, base_url="http://127.0.0.1") as http:
            for row in get(http, "/api/clients")["clients"]:
                assert row["status"] == "claimed"
                assert "claimed" in row["epsilon_text"]
                assert "claimed" in row["remaining_text"]
            told = get(http, "/api/summary")
            assert "claimed" in told["largest"]["text"]
            assert "claimed" in told["median"]["text"]
            assert told["sentence"].startswith("claimed, not guaranteed")
            assert (
                get(http, "/api/metrics")["status"] == get(http, "/api/overview", by="epsilon")["status"] == "claimed"
            )
            for line in http.get("/metrics").text.splitlines():
                assert not line.startswith("dualfed_epsilon") or 'status="claimed"' in line
