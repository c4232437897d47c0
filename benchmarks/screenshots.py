"""Takes the pictures of the live page that the docs show: ``docs/images/live-page-{light,dark,phone}.png``.

    python benchmarks/screenshots.py

Starts a run and its server in processes of their own, and a headless Chromium.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
RUN = """
name = "clinics"
engine = "inline"
seed = 5
evaluate_every = 2
[data]
name = "synthetic"
records = 9000
features = 20
classes = 4
spread = 1.6
[partition]
clients = 60
scheme = "dirichlet"
alpha = 1.0
min_size = 60
[method]
name = "fedspd-dp"
rounds = 1500
participants = 20
local_steps = 2
batch_size = 20
[privacy]
mode = "noise-multiplier"
noise_multiplier = 4.0
budget = 6.0
"""
VIEWS = (("light", 1360, 1000, "light"), ("dark", 1360, 1000, "dark"), ("phone", 360, 1000, "light"))
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def start(*arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "dualfed", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dualfed-shots-") as name:
        folder = Path(name)
        (folder / "run.toml").write_text(RUN)
        processes = [start("run", str(folder / "run.toml"), "--out", str(folder / "clinics"))]
        try:
            while not (folder / "clinics" / "events.jsonl").exists():
                time.sleep(0.2)
            processes.append(start("serve", str(folder / "clinics")))
            assert processes[1].stdout is not None
            shoot(processes[1].stdout.readline().split()[-1], processes[0].pid)
        finally:
            for process in processes:
                if process.poll() is None:
                    os.kill(process.pid, signal.SIGCONT)
                    os.kill(process.pid, signal.SIGKILL)
                process.wait()


def shoot(url: str, run: int) -> None:
    """Wait until the first clients are refused, hold the run there, and take one picture a view."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
        watching = browser.new_page(viewport={"width": 1360, "height": 1000})
        watching.goto(url)
        spent = "() => +document.querySelectorAll('.tile b')[4]?.textContent >= 4"
        watching.wait_for_function(spent, timeout=180_000)
        os.kill(run, signal.SIGSTOP)  # the three pictures then show the same round
        watching.wait_for_timeout(8000)
        for name, width, height, scheme in VIEWS:
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            page = context.new_page()
            page.goto(url)
            page.locator("#clients tbody tr").first.wait_for()
            page.click("th[data-sort=share] button")
            page.wait_for_timeout(2500)
            target = IMAGES / f"live-page-{name}.png"
            page.screenshot(path=target, full_page=name != "phone")
            Image.open(target).convert("RGB").quantize(160).save(target, optimize=True)
            print(f"{target} {target.stat().st_size // 1000} kB")
        browser.close()


if __name__ == "__main__":
    main()
