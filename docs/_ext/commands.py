"""The directive `commands`: every command of the program, with its options, as click has them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import click
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

from sinkprop.cli import program


def _inline(text: str) -> list[nodes.Node]:
    parts = re.split(r"`([^`]+)`", text)
    return [nodes.literal("", part) if i % 2 else nodes.Text(part) for i, part in enumerate(parts) if part]


def _literal(text: str, language: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language=language, xml_space="preserve")


def _words(text: str) -> list[nodes.Node]:
    """The paragraphs of a command's help; one that begins with click's mark keeps its lines."""
    result: list[nodes.Node] = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if block.startswith("\b\n"):
            result.append(_literal(block[2:], "sh"))
        else:
            result.append(nodes.paragraph("", "", *_inline(" ".join(block.split()))))
    return result


def _options(command: click.Command, context: click.Context) -> nodes.definition_list:
    items = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1]:  # the text above describes arguments
            items.append(
                nodes.definition_list_item(
                    "",
                    nodes.term("", "", nodes.literal("", record[0])),
                    nodes.definition("", nodes.paragraph("", "", *_inline(record[1]))),
                )
            )
    return nodes.definition_list("", *items, classes=["parameters", "options"])


class Commands(SphinxDirective):
    """A section for each command."""

    def run(self) -> list[nodes.Node]:
        group = program()
        parent = click.Context(group, info_name="sinkprop", **group.context_settings)
        sections: list[nodes.Node] = []
        for name in group.list_commands(parent):
            command = group.get_command(parent, name)
            assert command is not None
            context = click.Context(command, info_name=name, parent=parent)
            section = nodes.section(ids=[nodes.make_id(name)], names=[name])
            section += nodes.title("", "", nodes.literal("", f"sinkprop {name}"))
            section += _literal(
                " ".join([context.command_path, *command.collect_usage_pieces(context)]), "sh"
            )
            section += _words(command.help or "")
            section += _options(command, context)
            self.state.document.note_implicit_target(section)
            sections.append(section)
        return sections


def setup(app: Any) -> dict[str, Any]:
    """Sphinx's entry point."""
    app.add_directive("commands", Commands)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
