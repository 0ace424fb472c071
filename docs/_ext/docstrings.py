"""The API reference: docstrings in numpydoc form, with links, and the directive that lists names on a page.

`documented` shows a table of the names in its content, then each with its docstring. A name in single
backticks in a docstring becomes a link if the reference has it, and code if not.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

SECTION = re.compile(r"^(Parameters|Returns|Attributes|Examples|Notes|Raises|Yields|See Also)\n-{3,}$", re.M)
SPAN = re.compile(r"``.+?``|`[^`]+`", re.DOTALL)

Link = Callable[[str], str | None]  # the reference for a name in backticks, or None


def to_rst(text: str, link: Link) -> str:
    """The docstring `text` with links, and with the marks of reStructuredText escaped in its prose."""
    parts = []
    for block in re.split(r"(\n[ \t]*\n)", text):
        prose, doctest = re.fullmatch(r"(.*?)((?:^[ \t]*>>>.*)?)", block, re.DOTALL | re.MULTILINE).groups()
        literal = prose.startswith("    ") and "`" not in prose
        parts += [prose if literal else _escaped(prose, link), doctest]
    return "".join(parts)


def _escaped(text: str, link: Link) -> str:
    pieces, end = [], 0
    for span in SPAN.finditer(text):
        pieces += [_plain(text[end : span.start()]), _span(span.group(), link)]
        end = span.end()
    return "".join([*pieces, _plain(text[end:])])


def _plain(text: str) -> str:
    return re.sub(r"([\\*|@])|(?<=\w)(_)(?!\w)", r"\\\1\2", text)


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
    """The names that the pages of the reference in a folder list, such as sinkprop.evaluate."""
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
        from sphinx.ext.napoleon import Config, NumpyDocstring

        module = getattr(obj, "__module__", None) or name
        rst = to_rst("\n".join(lines), lambda text: links(text, module, name))
        if SECTION.search(rst):
            rst = str(
                NumpyDocstring(
                    rst,
                    Config(napoleon_use_rtype=False, napoleon_use_ivar=True),
                    app,
                    what,
                    name,
                    obj,
                    options,
                )
            )
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


def _directive() -> type:
    from docutils import nodes
    from docutils.parsers.rst import directives
    from docutils.statemachine import StringList
    from sphinx.util.docutils import SphinxDirective

    class Documented(SphinxDirective):
        """A table of names of the current module, then the docstring of each."""

        has_content = True
        option_spec = {"no-inherited-members": directives.flag}  # noqa: RUF012 - docutils' declaration

        def run(self) -> list[Any]:
            names = [line.strip() for line in self.content if line.strip()]
            module = importlib.import_module(self.env.ref_context["py:module"])
            lines = [".. autosummary::", "   :nosignatures:", "", *(f"   {name}" for name in names), ""]
            for name in names:
                kind = "class" if inspect.isclass(getattr(module, name)) else "function"
                if kind == "class" and issubclass(getattr(module, name), Exception):
                    kind = "exception"
                lines.append(f".. auto{kind}:: {name}")
                if "no-inherited-members" in self.options:
                    lines.append("   :no-inherited-members:")
                lines.append("")
            parent = nodes.container()
            content = StringList(lines, source=self.env.docname)
            self.state.nested_parse(content, self.content_offset, parent)
            return parent.children

    return Documented


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's entry point; `sinkprop_names` of conf.py lists the names in the reference."""
    app.add_config_value("sinkprop_names", [], "env")
    app.add_directive("documented", _directive())
    app.connect("autodoc-skip-member", _skip)

    def connect(app: Any, config: Any) -> None:
        app.connect("autodoc-process-docstring", _process(Links(config.sinkprop_names)), priority=400)

    app.connect("config-inited", connect)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
