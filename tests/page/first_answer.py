"""How far it is from a fresh server to the first answer of a model that it has to pull.

The hub is on loopback and its model is the built-in one, so that neither line nor model count: clicks and programs do.
`python -m tests.page.first_answer` prints the table of benchmarks/results/first-minutes.md, weight and first paint.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from jan_serve.resources import builtin_model, catalogue_file
from jan_serve.store.hub.references import Catalogue
from tests.page.support import chromium, opened_tab
from tests.support.servers.fake_hub import FakeHub, FakeRepo, running_hub
from tests.support.servers.served import serving

QUESTION = "Hello!"


def main() -> None:
    """Print the table."""
    model = builtin_model()
    assert model is not None
    with running_hub() as hub, sync_playwright() as playwright:
        for entry in Catalogue.read(catalogue_file()).entries():
            hub.repos[entry.repo] = FakeRepo({entry.file: model.read_bytes()})
        browser = chromium(playwright)
        rows = [_fresh(hub, lambda folder: by_page(browser, folder)), _fresh(hub, by_terminal)]
        sys.stdout.write("| way | steps | s |\n|---|---|---|\n")
        for way, steps, seconds in rows:
            sys.stdout.write(f"| {way} | {steps} | {seconds:.1f} |\n")
        browser.close()


def _fresh(hub: FakeHub, walk: Callable[[Path], tuple[str, str, float]]) -> tuple[str, str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = f'data_dir = "data"\nmodels_dir = "models"\nhf_endpoint = "{hub.url}"\n'
        (folder / "config.toml").write_text(config, encoding="utf-8")
        return walk(folder)


def by_page(browser: Browser, folder: Path) -> tuple[str, str, float]:
    """From the command that starts the server to the end of the answer, without a person's time."""
    began = time.perf_counter()
    with (
        serving(folder, "--port", "0", "--threads", "1") as server,
        opened_tab(browser, server.url()) as tab,
    ):
        card = tab.page.get_by_role("list", name="Models to get").get_by_role("listitem").first
        card.get_by_role("button", name="Get it").click()
        expect(tab.page.get_by_text("is here")).to_be_visible()
        tab.ask(QUESTION)
        tab.wait_for_answer()
        seconds = time.perf_counter() - began
        sys.stdout.write(f"{_weight(tab.page)}\n")
    return "the page", "1 command, 1 click, the question", seconds


def _weight(page: Page) -> str:
    sizes: list[list[object]] = page.evaluate(
        "performance.getEntriesByType('resource').map(({ name, decodedBodySize }) => [name, decodedBodySize])"
    )
    scripts = [str(name) for name, _ in sizes if str(name).endswith(".js")]
    packed = sum(len(gzip.compress(page.request.get(url).body(), 9)) for url in scripts)
    paint: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    return (
        f"scripts {packed:,} bytes compressed, first paint after {paint:.0f} ms"
        f" at a load of {os.getloadavg()[0]:.1f}"
    )


def by_terminal(folder: Path) -> tuple[str, str, float]:
    """`jan-serve run NAME QUESTION`, which starts a server, and pulls where a person would answer Enter."""
    name = next(each.name for each in Catalogue.read(catalogue_file()).entries() if "chat" in each.kinds)
    began = time.perf_counter()
    environment = {**os.environ, "JAN_SERVE_CONFIG": str(folder / "config.toml")}
    for words in (("pull", name), ("run", name, QUESTION)):
        subprocess.run(
            [sys.executable, "-m", "jan_serve", *words], env=environment, cwd=folder, check=True,
            stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip
    return "`jan-serve run NAME`, Enter", "1 command, 1 key", time.perf_counter() - began


if __name__ == "__main__":
    main()
