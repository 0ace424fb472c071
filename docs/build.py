"""Build the documentation, with every warning an error: `python docs/build.py [OUTPUT]`.

OUTPUT is docs/_build/html by default. The build executes the tutorials. Then it checks all pages: none may
load a script, style, font or picture from another host, and every link within the site must lead to a page
and an anchor that exist.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import sys
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

HERE = Path(__file__).parent
LOADED = {"script": "src", "img": "src", "source": "src", "iframe": "src", "object": "data", "video": "src"}
LINK_TYPES = {"stylesheet", "preload", "icon", "modulepreload", "preconnect", "dns-prefetch"}


class Page(HTMLParser):
    """The files that a page loads, the targets of its links, and its anchors."""

    def __init__(self, text: str):
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attributes}
        self.places.update(values[name] for name in ("id", "name") if name in values)
        if LOADED.get(tag) in values:
            self.loads.append(values[LOADED[tag]])
        if tag == "link" and LINK_TYPES & set(values.get("rel", "").split()):
            self.loads.append(values.get("href", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


def faults(site: Path) -> list[str]:
    """Faults of the built site, one sentence each."""
    pages = {
        path: Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        if "_static" not in path.parts
    }
    found = []
    for path, page in pages.items():
        name = path.relative_to(site)
        for url in page.loads:
            if urlsplit(url).scheme in ("http", "https") or url.startswith("//"):
                found.append(f"{name} loads {url}")
            elif not url.startswith("data:") and not (path.parent / unquote(urlsplit(url).path)).exists():
                found.append(f"{name} loads {url}, which is not there")
        for url in page.links:
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path.resolve()
            if not target.exists():
                found.append(f"{name} links to {url}, which is not there")
            elif parts.fragment and target.suffix == ".html":
                places = pages[site.resolve() / target.relative_to(site.resolve())].places
                if unquote(parts.fragment) not in places:
                    found.append(f"{name} links to {url}, a place that is not there")
    elsewhere = re.compile(r"(?:url\(|@import )[\"']?((?:https?:)?//[^\"')]+)")
    for path in sorted(site.rglob("*.css")):
        urls = elsewhere.findall(path.read_text(encoding="utf-8"))
        found += [f"{path.relative_to(site)} loads {url}" for url in urls]
    return found


def changed_files(folder: Path) -> list[str]:
    """Files whose checksum differs from the one in SHA256SUMS beside them."""
    found = []
    for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines():
        digest, name = line.split()
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest:
            found.append(f"{folder / name} is not the file that SHA256SUMS names")
    return found


def main(arguments: list[str]) -> int:
    """Build and check the site; the exit code is 0 if there is no fault."""
    parser = argparse.ArgumentParser(
        description="Build the documentation, run its tutorials, check its links."
    )
    parser.add_argument("output", nargs="?", type=Path, default=HERE / "_build" / "html")
    site = parser.parse_args(arguments).output.resolve()
    from sphinx.cmd.build import build_main

    if (site / "objects.inv").exists():  # an earlier build, which may have pages that no longer exist
        shutil.rmtree(site)
    begun = time.perf_counter()
    status = build_main(
        [
            "-q",
            "-W",
            "--keep-going",
            "-E",
            "-a",
            "-j",
            "auto",
            "-b",
            "html",
            "-d",
            f"{site}.doctrees",
            str(HERE),
            str(site),
        ]
    )
    if status:
        return status
    built = time.perf_counter() - begun
    wrong = changed_files(HERE / "_static" / "mathjax") + faults(site)
    print("\n".join(wrong), file=sys.stderr, end="\n" if wrong else "")
    pages = len([path for path in site.rglob("*.html") if "_static" not in path.parts])
    print(f"{pages} pages in {built:.0f} s, {len(wrong)} faults: {site / 'index.html'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
