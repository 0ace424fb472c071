"""The docstrings of sinkprop as reStructuredText.

In the source they are plain text that reads well in a terminal: parameters in two aligned columns, equations
indented, names in single backticks. Here the columns become definition lists, what is indented a literal
block, and a name a link where the reference has it. Docstrings with numpydoc sections are left to napoleon,
doctests stay as they are.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

NAME = r"(?:[A-Za-z_]\w*|\.\.\.|\"[^\"]+\")"
NAMES = rf"{NAME}(?:, {NAME})*"
SECTION = re.compile(r"^(Parameters|Returns|Attributes|Examples|Notes|Raises|Yields)\n-{3,}$", re.MULTILINE)
VALUE = re.compile(r'(?:(?<=\n)|(?<=\. ))(?=(?:"[^"]+"|None): )')  # "graded": ... "binary": ...
LITERAL = ".. code-block:: text\n\n"
SPAN = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)

Link = Callable[[str], str | None]  # the reference to what a name in backticks means, or None


def to_rst(text: str, link: Link) -> str:
    """The docstring `text` as reStructuredText."""
    if SECTION.search(text):
        return SPAN.sub(lambda span: _span(span.group(), link), text)
    parts: list[str] = []
    for block in re.split(r"\n[ \t]*\n", text.strip("\n")):
        lines = block.split("\n")
        if lines[0].startswith(">>>"):
            parts.append(block)
        elif all(line.startswith("    ") for line in lines):
            if parts and parts[-1].startswith(LITERAL):  # a blank line within what is indented
                parts[-1] += "\n\n" + block
            else:
                parts.append(LITERAL + block)
        elif entries := columns(lines):
            parts.append(_definitions(entries, link))
        else:
            parts.append(_escaped(block, link))
    return "\n\n".join(parts)


def columns(lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """The entries (names, lines of their meaning) of a block in two columns; none for any other block."""
    starts = [found.end() for line in lines if (found := re.match(rf"{NAMES} {{2,}}(?=\S)", line))]
    if not starts or not re.match(rf"{NAMES}(?: {{2,}}\S|$)", lines[0]):
        return []
    column = max(starts, key=starts.count)
    entries: list[tuple[str, list[str]]] = []
    for line in lines:
        found = re.match(rf"({NAMES})(?: +|$)(?=(.*))", line)
        if line.startswith(" "):
            entries[-1][1].append(line[column:] if not line[:column].strip() else line.strip())
        elif found and (found.end() == column or re.match(rf"{NAMES} {{2,}}\S|{NAMES}$", line)):
            names, meaning = found.group(1), found.group(2)
            # A line may hold a second entry: "n_iter  iterations     epsilon  what is added"
            second = re.match(r"(.*?\S) {2,}([a-z_]+) +(\S.*)$", meaning)
            if second and not meaning.startswith('"'):
                entries += [(names, [second.group(1)]), (second.group(2), [second.group(3)])]
            else:
                entries.append((names, [meaning] if meaning else []))
        else:
            return []
    return entries


def _definitions(entries: list[tuple[str, list[str]]], link: Link) -> str:
    parts = []
    for names, meaning in entries:
        term = ", ".join(name if name == "..." else f"``{name}``" for name in names.split(", "))
        if nested := columns(meaning):
            body = _definitions(nested, link)
        elif meaning and meaning[0].startswith('"') and len(items := VALUE.split("\n".join(meaning))) > 1:
            body = "\n".join("* " + _escaped(item.rstrip(), link).replace("\n", "\n  ") for item in items)
        else:
            body = _escaped("\n".join(meaning), link)
        parts.append(term + "\n" + "\n".join("    " + line if line else "" for line in body.split("\n")))
    return ".. rst-class:: parameters\n\n" + "\n\n".join(parts)


def _escaped(text: str, link: Link) -> str:
    """Text in which only backticks mark anything, and bullets and numbers at the beginning of lines."""
    bullet = re.match(r"[-*] ", text)
    pieces, end = [], 0
    for span in SPAN.finditer(text):
        pieces += [re.sub(r"([\\*|_@])", r"\\\1", text[end : span.start()]), _span(span.group(), link)]
        end = span.end()
    pieces.append(re.sub(r"([\\*|_@])", r"\\\1", text[end:]))
    result = "".join(pieces)
    return result[1:] if bullet and bullet.group() == "* " else result


def _span(span: str, link: Link) -> str:
    if span.startswith("``"):
        return span
    inner = " ".join(span[1:-1].split())
    return link(inner) or f"``{inner}``"


class Links:
    """References from names in docstrings to the pages that have them."""

    def __init__(self, names: Sequence[str]):
        self.names = set(names)  # sinkprop.evaluate, sinkprop.torch.MLP, ...
        self.modules = sorted({name.rpartition(".")[0] for name in names}, key=len)

    def __call__(self, text: str, module: str, own: str) -> str | None:
        if page := re.fullmatch(r"docs/([\w/-]+)\.md", text):
            return f":doc:`/{page.group(1)}`"
        name = text.removesuffix("()")
        # the public module that a private one belongs to comes first: sinkprop.torch.losses, sinkprop.torch
        near = [m for m in self.modules if module == m or module.startswith(m + ".")]
        for full in (name, *(f"{m}.{name}" for m in [*reversed(near), *self.modules])):
            if full in self.names and full != own:
                return f":py:obj:`{text} <{full}>`"
        return None


def listed_names(folder: Path) -> list[str]:
    """The names that the pages of the reference in a folder list, as sinkprop.evaluate."""
    names = []
    for page in sorted(folder.glob("*.md")):
        module = ""
        for line in page.read_text(encoding="utf-8").splitlines():
            if found := re.match(r"\.\. currentmodule:: (\S+)", line):
                module = found.group(1)
            elif found := re.match(r"   (\w+)$|\.\. py:data:: (\w+)$", line):
                names.append(f"{module}.{found.group(1) or found.group(2)}")
    return names


def _process(links: Links) -> Callable[..., None]:
    def process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
        module = getattr(obj, "__module__", None) or name
        rst = to_rst("\n".join(lines), lambda text: links(text, module, name))
        if SECTION.search(rst):
            from sphinx.ext.napoleon import Config, NumpyDocstring

            rst = str(NumpyDocstring(rst, Config(napoleon_use_rtype=False), app, what, name, obj, options))
        lines[:] = [*rst.split("\n"), ""]

    return process


def _skip(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """True for what scikit-learn's or torch's classes bring along, and for methods whose words are theirs."""
    if isinstance(obj, Enum):
        return False
    function = obj.fget if isinstance(obj, property) else getattr(obj, "__func__", obj)
    module = getattr(function, "__module__", None) or ""
    if inspect.isroutine(function) or isinstance(obj, property):
        if not module.startswith("sinkprop"):
            return True
        if not function.__doc__:
            owner: Any = sys.modules[module]
            for part in function.__qualname__.split(".")[:-1]:
                owner = getattr(owner, part, None)
            for base in getattr(owner, "__mro__", ()):
                member = vars(base).get(name)
                if getattr(member, "__doc__", None):
                    return None if base.__module__.startswith("sinkprop") else True
    return None


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's entry point; `sinkprop_names` of conf.py says what the reference has."""
    app.add_config_value("sinkprop_names", [], "env")
    app.connect("autodoc-skip-member", _skip)

    def connect(app: Any, config: Any) -> None:
        app.connect("autodoc-process-docstring", _process(Links(config.sinkprop_names)), priority=400)

    app.connect("config-inited", connect)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
