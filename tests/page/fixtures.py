"""A headless Chromium, servers with the built-in model, and tabs that fail for anything that a page must not do."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from jan_serve.core.measurements import SelfCheck
from jan_serve.resources import builtin_model, resource
from jan_serve.store.measurements import SelfChecks
from tests.page.support import KEY, Tab, chromium, opened_tab
from tests.support.servers.fake_hub import FakeHub, running_hub
from tests.support.servers.served import serving


# Not for the whole package: while it is open its event loop occupies this thread.
@pytest.fixture(scope="module")
def browser() -> Generator[Browser]:
    with sync_playwright() as playwright:
        try:
            browser = chromium(playwright)
        except FileNotFoundError as error:
            pytest.skip(str(error))
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def built_page() -> None:
    if resource("web", "dist", "index.html") is None:
        pytest.skip("the page is not built (make page)")


@pytest.fixture(scope="package")
def hub() -> Generator[FakeHub]:
    with running_hub() as hub:
        yield hub


@pytest.fixture(scope="package")
def folder(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Path:
    folder = tmp_path_factory.mktemp("page")
    (folder / "config.toml").write_text(f'data_dir = "data"\nhf_endpoint = "{hub.url}"\n', encoding="utf-8")
    SelfChecks(folder / "data").put(CHECK)
    return folder


@pytest.fixture(scope="package")
def shelf(folder: Path) -> Path:
    """The models folder: two copies of the built-in model, and one whose name attacks the page."""
    shelf = folder / "models"
    shelf.mkdir()
    model = builtin_model()
    assert model is not None
    for name in ("first", "second", HOSTILE_NAME):
        shutil.copyfile(model, shelf / f"{name}.gguf")
    return shelf


START_S = 60.0
N_CTX = 16384
ENDLESS = {"min_tokens": 15_000}
"""Fields of an answer that outlasts what a tab does meanwhile."""
CHECK = SelfCheck(
    version="9.1",
    compared_with="9.0",
    llama_cpp="0.1",
    at=1.8e9,
    answers={},
    prompt_per_s=1.0,
    tokens_per_s=1.0,
    devices={},
    free_bytes=1,
    findings=("The device <b>GPU</b> is gone.",),
)
HOSTILE_NAME = "x<img src=a onerror=alert(1)>"


@pytest.fixture(scope="package")
def url(built_page: None, folder: Path, shelf: Path) -> Generator[str]:
    flags = (
        "--port",
        "0",
        "--threads",
        "1",
        "--n-ctx",
        str(N_CTX),
        "--models-dir",
        str(shelf),
        "--model",
        "first",
        "--chat-bytes",
        "0",  # each tab has its own chats
    )
    with serving(folder, *flags) as server:
        yield server.url(START_S)


@pytest.fixture(scope="package")
def keyed_url(built_page: None, tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    folder = tmp_path_factory.mktemp("keyed")
    with serving(folder, "--port", "0", "--threads", "1", "--api-key", KEY) as server:
        yield server.url(START_S)


@pytest.fixture
def tab(browser: Browser, url: str) -> Generator[Tab]:
    """A fresh browser profile at the page."""
    with opened_tab(browser, url) as tab:
        yield tab
