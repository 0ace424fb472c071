"""The examples of the documentation run as they stand."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ("training", "baselines", "torch", "layers", "neural")
EXAMPLES = [
    pytest.param(code, id=f"{page.name}-{number}")
    for page in (ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in PAGES))
    for number, code in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
]


def test_there_are_examples():
    assert len(EXAMPLES) == 17


@pytest.mark.slow
@pytest.mark.parametrize("code", EXAMPLES)
def test_an_example_runs(code, tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    for number in re.findall(r"print\(.*\)  # (0\.\d+),", code):  # what a comment says is printed
        assert number in done.stdout
