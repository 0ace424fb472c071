"""A real browser for tests of pages: Chromium, driven by Playwright.

    from browser import chromium, opened, serious_findings, served

    @pytest.fixture(scope="module")
    def browser():
        with chromium() as launched:
            yield launched

Where no Chromium is installed the tests are skipped with a reason; where SINKPROP_REQUIRE_BROWSER=1 that is
an error, so that no check passes for want of one.
"""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str | None:
    """The browser on the path, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser for as long as a block takes."""
    required = os.environ.get("SINKPROP_REQUIRE_BROWSER") == "1"
    path = executable()
    if path is None:
        reason = f"no browser on the path: none of {', '.join(NAMES)}"
        if required:
            pytest.fail(f"{reason}, and SINKPROP_REQUIRE_BROWSER=1")
        pytest.skip(reason)
    if not required:
        pytest.importorskip("playwright.sync_api", reason="the tests of pages need playwright")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # without a process for graphics the first page is there a second sooner
        launched = playwright.chromium.launch(executable_path=path, args=["--disable-gpu"])
        try:
            yield launched
        finally:
            launched.close()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None:
        """Write nothing to stderr."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a server of a folder on this machine, without a slash at the end."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def opened(
    browser: Any,
    url: str,
    *,
    width: int = 1280,
    height: int = 900,
    dark: bool = False,
    ready: str = "html[data-ready]",
    within: str | None = None,
    seconds: float = 10,
) -> Iterator[Any]:
    """A page at an address, ready; by the end of the block it may have no error and no other request.

    `ready` selects an element that is there when the page is ready. A page of a site may also load files
    whose address starts with `within`. Each step may take so many seconds.
    """
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light"
    )
    context.set_default_timeout(1e3 * seconds)
    page = context.new_page()
    errors: list[str] = []
    requests: list[str] = []
    page.on(
        "console",
        lambda message: (
            errors.append(f"{message.text} {message.location['url']}")
            if message.type in ("error", "warning")
            else None
        ),
    )
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("requestfailed", lambda request: errors.append(f"failed: {request.url[:100]}"))
    page.on("dialog", lambda dialog: (errors.append(f"dialog: {dialog.message}"), dialog.dismiss()))
    # A data: address is part of the page itself.
    page.on(
        "request", lambda request: None if request.url.startswith("data:") else requests.append(request.url)
    )
    try:
        page.goto(url)
        page.wait_for_selector(ready, state="attached")
        yield page
        assert not errors, errors
        others = {address.partition("#")[0] for address in requests} - {url.partition("#")[0]}
        others = {address for address in others if within is None or not address.startswith(within)}
        assert not others, others
    finally:
        context.close()


def serious_findings(page: Any, *, rule: str | None = None) -> list[str]:
    """What axe-core finds of serious or critical impact, by all its rules or by one: rule and element."""
    from axe_playwright_python.sync_playwright import Axe

    # without preload, axe would fetch style sheets again, by wrong addresses
    options = {"resultTypes": ["violations"], "preload": False} | ({"runOnly": [rule]} if rule else {})
    found = [
        (finding["id"], finding["nodes"][0])
        for finding in Axe().run(page, options=options).response["violations"]
        if finding["impact"] in ("serious", "critical")
    ]
    return [f"{name}: {node['html'][:200]} {node.get('failureSummary', '')}" for name, node in found]
