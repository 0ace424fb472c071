"""The page of a report: data, style, scripts and the charting library in one HTML file.

The browser builds everything it shows from the data, which are in the page as JSON. The page cannot load
anything: its Content-Security-Policy forbids every connection and allows only the scripts whose hashes it
lists, so text in the data can never run as a script.
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

# A script may use the scripts before it; the last one starts the page.
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
    "clicks.js",
    "queries.js",
    "weights.js",
    "calibration.js",
    "ranked_lists.js",
    "matrices.js",
    "explanations.js",
    "explorer.js",
    "glossary.js",
    "report.js",
)
_PLOTLY = "plotly-cartesian.min.js"

# In JSON these characters occur only in strings, where their escapes have the same meaning. Unescaped, `<`
# could end the script element, and some JavaScript parsers treat U+2028 and U+2029 as the end of a line.
_ESCAPES = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def write_report(data: Mapping[str, Any], path: StrPath) -> None:
    """Write the page of a report to a file.

    An existing file is replaced only when the new one is complete.

    Parameters
    ----------
    data : mapping
        The data of a report, as `comparison_report` and `models_report` return them.
    path : path
        HTML file to write.
    """
    write_atomically(path, report_html(data))


def report_html(data: Mapping[str, Any]) -> str:
    """Make the HTML page of a report.

    Parameters
    ----------
    data : mapping
        The data of a report, as `comparison_report` and `models_report` return them.

    Returns
    -------
    str
        The page, which contains its data, scripts and style.

    Examples
    --------
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
    # All placeholders are replaced in one pass, so that text in the data that looks like one stays unchanged.
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("report.html"))


@cache
def _asset(name: str) -> str:
    return files("sinkprop.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _script() -> str:
    """Join the page's own scripts into one script, inside one function."""
    return "(() => {\n" + "\n".join(['"use strict";', *map(_asset, _SCRIPTS)]) + "})();\n"


def _policy(scripts: tuple[str, ...]) -> str:
    """Content-Security-Policy that allows only these scripts, inline styles and images within the page."""
    hashes = (base64.b64encode(hashlib.sha256(s.encode("utf-8")).digest()).decode("ascii") for s in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _json(data: Mapping[str, Any]) -> str:
    """The data as JSON that is safe within a script element."""
    try:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"data: expected plain JSON, with None for a missing number; {error}. Give Python's own numbers, "
            "strings, lists and dictionaries."
        ) from error
    return re.sub("[<>&\u2028\u2029]", lambda match: _ESCAPES[match[0]], text)
