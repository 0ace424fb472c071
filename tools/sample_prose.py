"""Draw a sample of docstrings, comments and help texts, to ask readers who do not know the code.

    python tools/sample_prose.py [--seed 0] [--docstrings 30] [--comments 18] [--help-texts 12]

Each text is printed with the name of its function, class, option or file, and without the code.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "sinkprop"
Text = tuple[str, str]  # where it is, and its words


def docstrings() -> Iterator[Text]:
    """Docstrings of modules, classes and functions, with their names and, for functions, their parameters."""
    for path in sorted(SOURCE.rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        where = path.relative_to(SOURCE).as_posix()
        yield from _of_node(tree, where)


def _of_node(node: ast.AST, where: str) -> Iterator[Text]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (words := ast.get_docstring(node)):
        yield f"{where}{f'({ast.unparse(node.args)})' if isinstance(node, ast.FunctionDef) else ''}", words
    for child in ast.iter_child_nodes(node):
        yield from _of_node(child, f"{where}, {child.name}" if hasattr(child, "name") else where)


def comments() -> Iterator[Text]:
    """Comments of Python and C++ files, consecutive lines joined, with the line of code beside or below."""
    for path in sorted(SOURCE.rglob("*.py")):
        with open(path, "rb") as file:
            found = {t.start[0]: t for t in tokenize.tokenize(file.readline) if t.type == tokenize.COMMENT}
        lines = path.read_text(encoding="utf-8").splitlines()
        is_alone = {n: not lines[n - 1][: t.start[1]].strip() for n, t in found.items()}
        yield from _joined(path, lines, {n: t.string.lstrip("# ") for n, t in found.items()}, is_alone)
    for path in sorted((ROOT / "native").rglob("*.[ch]pp")):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = {n: m for n, line in enumerate(lines, 1) if (m := re.match(r"(.*?)// ?(.*)", line))}
        is_alone = {n: not m[1].strip() for n, m in found.items()}
        yield from _joined(path, lines, {n: m[2] for n, m in found.items()}, is_alone)


def _joined(path: Path, lines: list[str], words: dict[int, str], is_alone: dict[int, bool]) -> Iterator[Text]:
    done: set[int] = set()
    for number in sorted(words):
        if number in done or re.match("noqa|type: ignore|fmt: |namespace", words[number]):
            continue
        end = number
        while is_alone[number] and is_alone.get(end + 1):
            end += 1
        done |= set(range(number, end + 1))
        beside = lines[number - 1] if not is_alone[number] else lines[end] if end < len(lines) else ""
        code = re.split(r"\s*(?:#|//) ", beside.strip())[0]
        yield f"{path.relative_to(ROOT)}: {code}", " ".join(words[n] for n in range(number, end + 1))


def help_texts() -> Iterator[Text]:
    """Help of every command and of every option."""
    import click

    from sinkprop.cli import program

    for name, command in program().commands.items():
        context = click.Context(command, info_name=name)
        yield f"sinkprop {name} --help", command.help or ""
        for option in command.params:
            record = option.get_help_record(context)
            if record and record[1]:  # the help of the command describes its arguments
                yield f"sinkprop {name} {record[0]}", record[1]


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description="Draw a sample of docstrings, comments and help texts.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--docstrings", type=int, default=30)
    parser.add_argument("--comments", type=int, default=18)
    parser.add_argument("--help-texts", type=int, default=12)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    drawn: list[tuple[str, Text]] = []
    for kind, texts, n in (
        ("docstring", docstrings(), given.docstrings),
        ("comment", comments(), given.comments),
        ("help", help_texts(), given.help_texts),
    ):
        drawn += [(kind, text) for text in rng.sample(list(texts), n)]
    for number, (kind, (where, words)) in enumerate(drawn, 1):
        print(f"--- {number}. {kind}, {where}\n{words}\n")


if __name__ == "__main__":
    main()
