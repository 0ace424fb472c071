"""Links to files of the repository outside docs/, redirected to the page that includes the file."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

PAGES = {  # file of the repository: the page that includes it
    "benchmarks/README.md": "benchmarks",
    "src/sinkprop/datasets/pydocs/README.md": "pydocs",
    "CHANGELOG.md": "changelog",
}
LINK = re.compile(r"(?<=\]\()((?:\.\./)+[^)#\s]+)")


def _rewrite(app: Any, docname: str, source: list[str]) -> None:
    folder = posixpath.dirname(posixpath.join("docs", docname))

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(folder, link.group()))
        if path.startswith("docs/"):
            return link.group()
        if path not in PAGES:
            raise ValueError(
                f"docs/{docname}.md links to {path}, for which docs/_ext/outside.py names no page"
            )
        return posixpath.relpath(posixpath.join("docs", PAGES[path]), folder) + ".md"

    source[0] = LINK.sub(target, source[0])


def _missing(app: Any) -> None:
    root = Path(app.srcdir).parent
    for path in PAGES:
        if not (root / path).exists():
            raise FileNotFoundError(f"docs/_ext/outside.py names {path}, which is not there")


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's entry point."""
    app.connect("source-read", _rewrite)
    app.connect("builder-inited", _missing)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
