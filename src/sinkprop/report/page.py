"""The page of a report: data, style, scripts and the charting library in one HTML file.

Everything that is shown is made in the browser from the data, which stand in the page as JSON. The page may
load nothing: its Content-Security-Policy forbids every connection, and allows only the scripts whose hashes
it names, so that no text of the data can ever run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from sinkprop.common.atomic import StrPath, write_atomically

__all__ = ["report_html", "write_report"]

FORMAT, VERSION = "sinkprop-report", 1

# In the order in which they build on each other; the last one starts the page.
_SCRIPTS = (
    "elements.js",
    "numbers.js",
    "state.js",
    "charts.js",
    "distribution.js",
    "opening.js",
    "glance.js",
    "curves.js",
    "scores.js",
    "training.js",
    "queries.js",
    "weights.js",
    "ranked_lists.js",
    "matrices.js",
    "explorer.js",
    "glossary.js",
    "report.js",
)
_PLOTLY = "plotly-cartesian.min.js"

# Within JSON these stand only in strings, where the escape means the same. `<` is what could end or change
# the script element; the line separators end a line for some readers of JavaScript.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_report(data: Mapping[str, Any], path: StrPath) -> None:
    """Write the page of `report_html` to a file, which is replaced in one step."""
    write_atomically(path, report_html(data))


def report_html(data: Mapping[str, Any]) -> str:
    """The page of a report, as text: `data` as `comparison_report` and `models_report` make them.

    >>> page = report_html({"format": "sinkprop-report", "version": 1, "title": "<b>", "datasets": []})
    >>> page[:15], "<title>&lt;b&gt;</title>" in page, len(page) < 2_000_000
    ('<!doctype html>', True, True)
    """
    form = data.get("format"), data.get("version")
    if form != (FORMAT, VERSION):
        raise ValueError(
            f"data: expected a record with format {FORMAT!r} and version {VERSION}; got format {form[0]!r}, "
            f"version {form[1]!r}. Make it with comparison_report or models_report of this version."
        )
    scripts = _script(), _asset(_PLOTLY)
    parts = {
        "title": html.escape(str(data.get("title") or "sinkprop report")),
        "policy": html.escape(_policy(scripts)),
        "css": _asset("report.css"),
        "data": _json(data),
        "script": scripts[0],
        "plotly": scripts[1],
    }
    # In one pass, so that a placeholder within the data stays what it is.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("report.html"))


@cache
def _asset(name: str) -> str:
    return files("sinkprop.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """The page's own scripts as one, with names of its own."""
    return "(() => {\n" + "\n".join(['"use strict";', *map(_asset, _SCRIPTS)]) + "})();\n"


def _policy(scripts: tuple[str, ...]) -> str:
    """What the page may do: run these scripts, style itself, and draw pictures that it holds itself."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode("utf-8")).digest()).decode("ascii") for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(data: Mapping[str, Any]) -> str:
    """The data as JSON that may stand within a script element."""
    try:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"data: expected plain JSON, with None for a number that is not there; {error}. Give Python's "
            "own numbers, texts, lists and dictionaries."
        ) from error
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)
