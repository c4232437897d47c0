"""The live page in a real browser, beside a run in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api", reason="needs playwright")

_SPEC = importlib.util.spec_from_file_location("browser", Path(__file__).parent / "browser.py")
assert _SPEC is not None
assert _SPEC.loader is not None
_BROWSER = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_BROWSER)

pytestmark = pytest.mark.slow

CLIENTS = 24
RUN = f"""
name = "watched"
engine = "inline"
seed = 5
evaluate_every = 5
checkpoint_every = 100000
[data]
name = "synthetic"
records = 1200
features = 6
classes = 3
[partition]
clients = {CLIENTS}
min_size = 20
[method]
name = "fedspd-dp"
rounds = 100000
participants = 8
local_steps = 1
batch_size = 10
[privacy]
mode = "noise-multiplier"
noise_multiplier = 20.0
budget = 8.0
"""
PATIENCE_MS = 60_000


class Served:
    """A run that goes on, its server, and the address of the page."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.server = folder, None, None
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start_run(self) -> None:
        (self.folder / "run.toml").write_text(RUN)
        command = ["run", str(self.folder / "run.toml"), "--out", str(self.folder / "out")]
        self.run = self._started(command, subprocess.DEVNULL)
        deadline = time.monotonic() + 90
        while not (self.folder / "out" / "events.jsonl").exists():
            assert self.run.poll() is None, "the run did not start"
            assert time.monotonic() < deadline, "the run took too long to start"
            time.sleep(0.2)

    def start_server(self) -> None:
        self.server = self._started(["serve", str(self.folder / "out"), "--port", str(self.port)], subprocess.PIPE)
        line = self.server.stdout.readline()
        assert self.url in line, line

    def _started(self, arguments: list[str], out: int) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "dualfed", *arguments],
            stdout=out,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=self.folder,
            env=self.environment,
        )

    @staticmethod
    def kill(process: subprocess.Popen | None) -> None:
        if process is not None and process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def browser():
    with _BROWSER.chromium() as found:
        yield found


@pytest.fixture(scope="module")
def served(browser, tmp_path_factory):
    found = Served(tmp_path_factory.mktemp("page"))
    try:
        found.start_run()
        found.start_server()
        yield found
    finally:
        found.kill(found.server)
        found.kill(found.run)


@pytest.fixture
def page(browser, served):
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme="light")
    faults: list[str] = []
    found = context.new_page()
    found.on("pageerror", lambda error: faults.append(str(error)))
    found.goto(served.url)
    found.locator("#clients tbody tr").first.wait_for(timeout=PATIENCE_MS)
    yield found
    context.close()
    assert faults == []


def until(page, expression: str, argument: object = None) -> None:
    page.wait_for_function(expression, arg=argument, timeout=PATIENCE_MS)


def number(page, selector: str) -> int:
    found = re.search(r"\d+", page.inner_text(selector))
    assert found is not None
    return int(found[0])


def test_numbers_change_while_the_run_goes_on(page):
    done, exact = number(page, "#round-text"), number(page, "#exact")
    until(page, "n => +document.querySelector('#round-text').textContent.match(/\\d+/)[0] > n + 5", done)
    until(page, "n => +document.querySelector('#exact').textContent.match(/\\d+/)[0] > n", exact)
    spent = page.locator("#clients tbody tr td:nth-child(2)").all_inner_texts()
    until(
        page,
        "a => [...document.querySelectorAll('#clients tbody td:nth-child(2)')].map(e => e.innerText) + '' !== a",
        ",".join(spent),
    )
    assert page.inner_text("#state") == "running"
    assert "guaranteed" in page.inner_text("#run-what")
    assert page.inner_text("#sentence").startswith("Guaranteed (")
    assert page.locator(".chart canvas").count() >= 3
    assert "not private" in page.locator(".chart", has_text="Objective").inner_text()


def test_sort_filter_and_open_a_client(page):
    page.click("th[data-sort=epsilon] button")
    until(page, "() => document.querySelector('th[data-sort=epsilon]').ariaSort === 'descending'")
    until(
        page,
        """() => { const v = [...document.querySelectorAll('#clients tbody td:nth-child(2)')].map(e => parseFloat(e.innerText));
                   return v.length === 20 && v.every((x, k) => !k || v[k - 1] >= x); }""",
    )
    page.click("#after")
    until(page, f"() => document.querySelectorAll('#clients tbody tr').length === {CLIENTS - 20}")
    page.fill("#filter-client", "7, 11-12")
    until(page, "() => document.querySelectorAll('#clients tbody tr').length === 3")
    assert sorted(page.locator("#clients .open").all_inner_texts(), key=int) == ["7", "11", "12"]
    page.fill("#filter-client", "x")
    until(page, "() => document.querySelector('#filter-told').textContent.includes('numbers and ranges')")
    page.fill("#filter-client", "7")
    until(page, "() => document.querySelectorAll('#clients tbody tr').length === 1")
    page.click("#clients .open")
    page.locator("#detail[open]").wait_for(timeout=PATIENCE_MS)
    assert page.inner_text("#detail-title") == "Client 7"
    page.fill("#what-rounds", "500")
    page.click("#detail button[type=submit]")
    until(page, "() => /After 500 more rounds.*ε = \\d/.test(document.querySelector('#what-answer').textContent)")
    page.keyboard.press("Escape")
    until(page, "() => !document.querySelector('#detail').open")


def paper(page) -> str:
    return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))


def test_light_dark_and_the_switch(page):
    light = paper(page)
    page.emulate_media(color_scheme="dark")
    dark = paper(page)
    assert light != dark
    page.select_option("#theme", "light")
    assert paper(page) == light
    page.reload()
    page.locator("#clients tbody tr").first.wait_for(timeout=PATIENCE_MS)
    assert paper(page) == light
    page.select_option("#theme", "dark")
    page.emulate_media(color_scheme="light")
    assert paper(page) == dark


@pytest.mark.parametrize("width", [360, 768])
def test_no_sideways_scrolling(page, width):
    page.set_viewport_size({"width": width, "height": 780})
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("#clients tbody td:nth-child(2)").first.is_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(page, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page.emulate_media(color_scheme=scheme)
    page.wait_for_timeout(300)
    found = Axe().run(page)
    worst = [
        (fault["id"], fault["nodes"][0]["html"][:160])
        for fault in found.response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]
    assert worst == []


def test_the_documentation_lists_the_endpoints(page, served):
    page.goto(served.url + "docs")
    page.locator(".endpoint").first.wait_for(timeout=PATIENCE_MS)
    assert "/api/what-if" in page.inner_text("#list")


def test_the_server_is_lost_and_comes_back(page, served):
    done = number(page, "#round-text")
    served.kill(served.server)
    until(page, "() => document.querySelector('#banner').textContent.includes('does not answer')")
    assert page.inner_text("#state") == "server away"
    assert "exact as of round" in page.inner_text("#banner")
    served.start_server()
    until(page, "() => document.querySelector('#state').textContent === 'running'")
    until(page, "n => +document.querySelector('#round-text').textContent.match(/\\d+/)[0] > n", done)
    assert not page.locator("#banner").is_visible()


def test_the_run_is_lost_and_the_page_says_so(page, served):
    served.kill(served.run)
    until(page, "() => document.querySelector('#state').textContent === 'process gone'")
    assert "dualfed resume" in page.inner_text("#banner")
