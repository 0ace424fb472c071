"""The documentation: its examples run as they stand, its commands exist, its reference is complete."""

import ast
import importlib
import importlib.util
import json
import re
import shlex
from pathlib import Path

import click
import pytest
from places import ROOT
from warm import Warm

import sinkprop
from sinkprop.cli import program
from sinkprop.common.packages import installed

DOCS = ROOT / "docs"
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (
        *ROOT.glob("*.md"),
        *(ROOT / "src").rglob("*.md"),
        ROOT / "benchmarks/README.md",
        ROOT / "fuzz/README.md",
        *DOCS.rglob("*.md"),
    )
    if not {"_build", "_static"} & set(path.parts)
)
# Blocks of Python that are not run have the mark `<!-- not run: why -->` above; their numbers.
NOT_RUN = {
    "docs/cluster.md": 1,
    "docs/compare.md": 2,
    "docs/neural.md": 1,
    "docs/results.md": 1,
}
# Pages whose blocks another test runs, with more to it.
ELSEWHERE = {
    "docs/browser.md": "export/test_javascript.py",
    "docs/data.md": "data/test_letor.py",
    "docs/jax.md": "jax/test_page.py",
    "docs/lightning.md": "torch/test_lightning.py",
    "docs/migration.md": "torch/test_migration.py",
    "docs/rerank.md": "rerank/test_pages.py",
    "docs/tracking.md": "mlflow/test_tracking.py",
    "docs/tuning.md": "estimator/test_optuna.py",
    "docs/serving.md": "serving/test_page.py",
    "docs/tutorials/reranker.md": "rerank/test_pages.py",
    "docs/model-files.md": "test_model_files.py",
}
TUTORIALS = [
    page
    for page in PAGES
    if page.startswith("docs/tutorials/") and not page.endswith("/index.md") and page not in ELSEWHERE
]
BLOCK = re.compile(r"(?:^<!-- (?P<mark>.+?) -->\n)?^```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE)

# Each example by itself, with names of its own, but those of a page in one process, which has the imports of
# all pages behind it: most of their time would be imports.
IMPORTS = ("sinkprop.registry", "sinkprop.linear", "sklearn.model_selection", "pandas", "torch", "lightgbm")
RUN = """
import contextlib, io, json, sys

printed = []
for name, code in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    printed.append(output.getvalue())
json.dump(printed, sys.stdout)
"""


def text(page):
    return (ROOT / page).read_text(encoding="utf-8")


def examples(page):
    """The blocks to be run, and the marks of those that are not."""
    blocks = [(block["mark"] or "", block["code"]) for block in BLOCK.finditer(text(page))]
    marks = [mark for mark, _ in blocks if mark.startswith("not run: ")]
    return [code for mark, code in blocks if not mark.startswith("not run: ")], marks


RUNNING = [page for page in PAGES if examples(page)[0] and page not in ELSEWHERE]


def test_pages_are_found():
    assert {"README.md", "docs/index.md", "docs/training.md", "docs/tutorials/first-ranker.md"} <= set(PAGES)
    assert {"README.md", "docs/index.md", "docs/training.md", "docs/layers.md", "docs/boosting.md"} <= set(
        RUNNING
    )


@pytest.mark.parametrize("page", PAGES)
def test_every_block_is_run_or_marked(page):
    # a block in another form (indented, with tildes, as "py") would escape those who look for blocks
    assert len(
        re.findall(r"^\s*(?:```+|~~~+)\s*(?:\{code-block\}\s*)?(?:py|python3?|ipython3?)\b", text(page), re.M)
    ) == len(BLOCK.findall(text(page)))
    assert len(examples(page)[1]) == NOT_RUN.get(page, 0)


@pytest.mark.parametrize("page", ELSEWHERE)
def test_pages_of_other_tests_are_read_there(page):
    assert examples(page)[0]
    assert Path(page).name in (ROOT / "tests" / ELSEWHERE[page]).read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def strict():
    """Processes in which a warning is an error."""
    with Warm(*filter(installed, IMPORTS), options=("-W", "error")) as strict:
        yield strict


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNING)
def test_the_examples_run(page, tmp_path, strict):
    codes = examples(page)[0]
    given = json.dumps([(f"{page}, example {i}", code) for i, code in enumerate(codes, 1)])
    done = strict.run(RUN, input=given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for code, printed in zip(codes, json.loads(done.stdout), strict=True):
        assert bool(printed) == ("print(" in code)
        for number in re.findall(r"print\(.*\)  # (0\.\d+),", code):  # what a comment says is printed
            assert number in printed


@pytest.mark.parametrize("page", TUTORIALS)
def test_tutorials_are_notebooks(page):
    # they are run by docs/build.py, where their cells make the page
    assert text(page).startswith("---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n")
    cells = re.findall(r"^```\{code-cell\} ipython3\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE)
    assert len(cells) == text(page).count("{code-cell}") > 3
    for cell in cells:
        ast.parse(cell)


def commands(page):
    """The commands of the program in a page, in blocks of shell and within text, up to a pipe or the like."""
    found = []
    for block in re.findall(r"^```(?:sh|console)\n(.*?)^```$", text(page), re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            found += re.findall(r"(?:^(?:\$ )?|[|;&] *|/)(sinkprop .*)", line)
    found += re.findall(
        r"`(sinkprop [a-z][^`]*)`", re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.MULTILINE)
    )
    result = []
    for line in found:
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words = list(lexer)
        end = next((i for i, word in enumerate(words) if set(word) <= set("|<>&;()")), len(words))
        result.append(words[1:end])
    return result


def test_commands_are_found():
    found = [words for page in PAGES for words in commands(page)]
    assert ["compare", "OHSUMED"] in found
    assert len(found) > 30
    assert sum(any(word.startswith("--") for word in words) for words in found) > 15


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)])
def test_commands_of_the_pages_exist(page):
    group = program()
    for words in commands(page):
        assert words[0] in group.commands, f"sinkprop {words[0]}"
        command = group.commands[words[0]]
        context = click.Context(command, info_name=words[0])
        try:
            parser = command.make_parser(context)
            try:
                parser.parse_args(args=[word for word in words[1:] if word != "..."])
            except click.BadOptionUsage:  # a text may name an option without its value
                parser.parse_args(args=[*words[1:], "VALUE"])
        except click.UsageError as error:
            pytest.fail(f"sinkprop {' '.join(words)}: {error.format_message()}")


def extension(name):
    """A module of the documentation, which needs no Sphinx as long as it is not built."""
    path = DOCS / ("build.py" if name == "build" else f"_ext/{name}.py")
    spec = importlib.util.spec_from_file_location(f"docs_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Packages whose extra the tests do not need; their names are looked up where it is installed.
NEEDS = {".rerank": "sentence_transformers", ".jax": "jax", ".mlflow": "mlflow"}
PUBLIC = [
    name
    for name in (
        "",
        ".baselines",
        ".cluster",
        ".datasets",
        ".experiment",
        ".export",
        ".gbdt",
        ".metrics",
        ".mlflow",
        ".permutations",
        ".plot",
        ".reference",
        ".report",
        ".rerank",
        ".store",
        ".torch",
        ".jax",
    )
    if importlib.util.find_spec(f"sinkprop{name}") and installed(NEEDS.get(name, "numpy"))
]


@pytest.mark.parametrize("name", PUBLIC)
def test_the_reference_has_every_public_name(name):
    module = importlib.import_module(f"sinkprop{name}")
    missing = tuple(f"sinkprop{package}." for package, needed in NEEDS.items() if not installed(needed))
    listed = extension("docstrings").listed_names(DOCS / "api")
    listed = [full for full in listed if not full.startswith(missing)]
    objects = [
        getattr(importlib.import_module(full.rpartition(".")[0]), full.rpartition(".")[2]) for full in listed
    ]
    for public in module.__all__:
        thing = getattr(module, public)
        if f"{module.__name__}.{public}" not in listed and type(thing) is not type(sinkprop):  # or a module
            assert any(thing is other for other in objects), f"docs/api lists no {module.__name__}.{public}"
    own = [full for full in listed if full.rpartition(".")[0] == module.__name__]
    assert len(own) == len(set(own))
    assert {full.rpartition(".")[2] for full in own} <= set(module.__all__)


def linked(name):
    return f"<{name}>" if name == "Gain" else None


@pytest.mark.parametrize(
    ("docstring", "rst"),
    [
        ("A * b, |x|, y_ and `Gain` of `x`.", r"A \* b, \|x\|, y\_ and <Gain> of ``x``."),
        ('As "ndcg@10".', r'As "ndcg\@10".'),
        ("Text::\n\n    |a| = b_\n\n    c = d\n\nMore.", "Text::\n\n    |a| = b_\n\n    c = d\n\nMore."),
        (">>> a_ * 2\n1", ">>> a_ * 2\n1"),
        ("Examples\n--------\n>>> a_ * 2\n1\n\nb *", "Examples\n--------\n>>> a_ * 2\n1\n\nb \\*"),
        (
            "x : int\n    It.\n\nParameters\n----------\ny : a_b `Gain`",
            "x : int\n    It.\n\nParameters\n----------\ny : a_b <Gain>",
        ),
    ],
)
def test_docstrings_become_restructured_text(docstring, rst):
    assert extension("docstrings").to_rst(docstring, linked) == rst


def test_faults_of_a_site_are_found(tmp_path):
    faults = extension("build").faults
    (tmp_path / "_static").mkdir()
    (tmp_path / "_static/a.css").write_text("a { background: url('_static/b.png') }", encoding="utf-8")
    head = '<link rel="stylesheet" href="_static/a.css"><h1 id="top">'
    (tmp_path / "a.html").write_text(
        head + '<a href="b.html#there"><a href="https://x.org/">', encoding="utf-8"
    )
    (tmp_path / "b.html").write_text(
        head + '<a name="there"><a href="a.html#top"><a href="#top">', encoding="utf-8"
    )
    assert faults(tmp_path) == []
    (tmp_path / "a.html").write_text(
        head + '<script src="//c.org/x.js"></script><a href="b.html#gone"><a href="c.html"><img src="p.png">',
        encoding="utf-8",
    )
    (tmp_path / "_static/a.css").write_text(
        "@import '//fonts.org/f.css'; a { b: url(https://x.org/y) }", encoding="utf-8"
    )
    assert faults(tmp_path) == [
        "a.html loads //c.org/x.js",
        "a.html loads p.png, which is not there",
        "a.html links to b.html#gone, a place that is not there",
        "a.html links to c.html, which is not there",
        "_static/a.css loads //fonts.org/f.css",
        "_static/a.css loads https://x.org/y",
    ]


def test_mathjax_is_the_one_that_its_readme_names():
    folder = DOCS / "_static" / "mathjax"
    assert extension("build").changed_files(folder) == []
    named = {line.split()[1] for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()}
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert named == there - {"LICENSE", "README.md", "SHA256SUMS"}
    assert '"3.2.2"' in (folder / "tex-chtml.js").read_text(encoding="utf-8")
