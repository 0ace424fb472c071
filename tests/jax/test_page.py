"""The page docs/jax.md: its program runs with Rax, if that is installed, and with sinkprop."""

import os
import re
import subprocess
import sys

import pytest
from frontends import front_end
from places import ROOT

import sinkprop

jax, _ = front_end("jax", "sinkprop.jax")
PAGE = (ROOT / "docs" / "jax.md").read_text(encoding="utf-8")


def block(language, mark=""):
    (found,) = re.findall(rf"{mark}\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    return found


def printed(code, *options):
    paths = [os.path.dirname(os.path.dirname(sinkprop.__file__)), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def ndcg(code, *options):
    return float(printed(code, *options).removeprefix("NDCG@10 "))


def test_the_program_after_the_change():
    front_end("optax", "optax")
    code = block("python", "<!-- test: rax -->")
    lines = block("diff", "<!-- test: rax -->").splitlines()
    for old, new in zip(lines[::2], lines[1::2], strict=True):
        assert (old[0], new[0]) == ("-", "+")
        assert code.count(old[1:] + "\n") == 1
        code = code.replace(old[1:], new[1:])
    assert "rax" not in code
    assert ndcg(code, "-W", "error") > 0.5


def test_the_program_before_the_change():
    pytest.importorskip("rax", reason="the program before the change needs rax")
    if not hasattr(jax, "util"):
        pytest.skip("Rax needs jax.util, which this JAX does not have")
    assert ndcg(block("python", "<!-- test: rax -->"), "-W", "ignore") > 0.4


def test_the_other_example():
    (code,) = re.findall(r"\n\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(printed(code, "-W", "error").splitlines()) > 3
