"""The HTML report of a comparison against its targets: time to make it, size, time to load, and faults.

    sinkprop compare OHSUMED --methods regression,sinkprop,... --json results.json
    python benchmarks/report.py results.json

The file is a comparison's JSON, or the data of a report (`sinkprop report --json`). "Made" is the time from
the file to the page on disk, the best of a few. "Shown" and "ready" are the times from the start of the
navigation to marks that the page sets: "shown" when text, tables and lists are on the page, "ready" when the
visible charts are drawn. They are medians over new pages in a running Chromium. Faults are console errors,
network requests, and the findings of axe-core in light and dark mode with the tables open. Needs Chromium on
the PATH, playwright and axe-playwright-python.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

from sinkprop.experiment import Comparison
from sinkprop.report import comparison_report, write_report

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FIGURES = {"made": 10.0, "ready": 2.0, "megabytes": 5.0}


def make(source: Path, page: Path) -> None:
    text = source.read_text(encoding="utf-8")
    data = json.loads(text)
    if data["format"] == "sinkprop-comparison":
        data = comparison_report(Comparison.from_json(text))
    write_report(data, page)


def timed(source: Path, page: Path, rounds: int) -> float:
    """The best of several times from the file to the page."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        make(source, page)
        times.append(time.perf_counter() - began)
    return min(times)


def opened(browser: Any, url: str, faults: list[str], *, width: int = 1280, dark: bool = False) -> Any:
    """A new page that is ready."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.on(
        "console", lambda m: faults.append(f"console: {m.text}") if m.type in ("error", "warning") else None
    )
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on(
        "request",
        lambda r: None if r.url.startswith("data:") or r.url == url else faults.append(f"request: {r.url}"),
    )
    page.goto(url)
    page.wait_for_selector("html[data-ready]", state="attached")
    return page


def marks(browser: Any, url: str, faults: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds from the start of the navigation to each mark of the page."""
    names = ("shown", "ready")
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        page = opened(browser, url, faults)
        for name in names:
            mark = f"performance.getEntriesByName('sinkprop-{name}')[0].startTime"
            found[name].append(page.evaluate(mark) / 1000)
        page.context.close()
    return found


def findings(browser: Any, url: str, faults: list[str], *, dark: bool) -> list[tuple[str, str]]:
    """Rule and impact of each finding of axe-core, with all charts drawn and all tables but matrices open."""
    page = opened(browser, url, faults, dark=dark)
    page.evaluate("sinkpropReport.drawAll()")
    page.evaluate(
        """document.querySelectorAll('details').forEach(own => {
          own.open = !own.textContent.includes('matrix');
        })"""
    )
    page.wait_for_timeout(300)
    found = Axe().run(page).response["violations"]
    page.context.close()
    return [(finding["id"], finding["impact"]) for finding in found]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, metavar="FILE", help="comparison or report data as JSON")
    parser.add_argument("--rounds", type=int, default=5, help="number of repetitions  [default: 5]")
    options = parser.parse_args()
    executable = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if executable is None:
        sys.exit(f"no browser on the path: expected one of {', '.join(BROWSERS)}.")
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        made = timed(options.source, path, options.rounds)
        megabytes = path.stat().st_size / 1e6
        url = path.as_uri()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=executable)
            version = browser.version
            opened(browser, url, faults).context.close()  # the first page includes the browser's start
            times = marks(browser, url, faults, options.rounds)
            axe = {theme: findings(browser, url, faults, dark=theme == "dark") for theme in ("light", "dark")}
            browser.close()
    ready = statistics.median(times["ready"])
    serious = [f for own in axe.values() for f in own if f[1] in ("serious", "critical")]
    print(f"{options.source.name}, Chromium {version}, {options.rounds} rounds")
    print(f"made         {made:6.2f} s     asked: under {FIGURES['made']:g} s")
    print(f"size         {megabytes:6.2f} MB    asked: under {FIGURES['megabytes']:g} MB")
    print(f"text shown   {statistics.median(times['shown']):6.2f} s     ({spread(times['shown'])})")
    print(f"ready        {ready:6.2f} s     ({spread(times['ready'])}) asked: under {FIGURES['ready']:g} s")
    print(f"faults       {len(faults):6d}       {'; '.join(faults[:3]) or 'none'}")
    for theme, own in axe.items():
        print(f"axe, {theme:5}   {len(own):6d}       {', '.join(f'{n} ({i})' for n, i in own) or 'none'}")
    limits = made < FIGURES["made"] and ready < FIGURES["ready"] and megabytes < FIGURES["megabytes"]
    reached = limits and not faults and not serious
    print("all figures reached" if reached else "a figure is not reached")
    return 0 if reached else 1


def spread(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f}"


if __name__ == "__main__":
    sys.exit(main())
