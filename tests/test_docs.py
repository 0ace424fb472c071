"""The examples of the documentation run as they stand."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = {  # and how many examples each has
    "README.md": 3,
    "docs/training.md": 2,
    "docs/baselines.md": 2,
    "docs/torch.md": 2,
    "docs/layers.md": 5,
    "docs/neural.md": 3,
    "docs/boosting.md": 5,
    "docs/tree_libraries.md": 4,
}
# Each example by itself, with names of its own, but those of a page in one process: most of their time would
# be imports.
RUN = """
import contextlib, io, json, sys

printed = []
for name, code in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as output:
        exec(compile(code, name, "exec"), {"__name__": "__main__"})
    printed.append(output.getvalue())
json.dump(printed, sys.stdout)
"""


def examples(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_there_are_examples(page):
    assert len(examples(page)) == PAGES[page]


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_run(page, tmp_path):
    codes = examples(page)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", RUN],
        input=json.dumps([(f"{page}, example {i}", code) for i, code in enumerate(codes, 1)]),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for code, printed in zip(codes, json.loads(done.stdout), strict=True):
        assert printed
        for number in re.findall(r"print\(.*\)  # (0\.\d+),", code):  # what a comment says is printed
            assert number in printed
