"""Imports: nothing of Hugging Face's by sinkprop and sinkprop.torch, and the error without the extra."""

import subprocess
import sys
import textwrap

import pytest


def run(code):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("package", ["sinkprop", "sinkprop.torch"])
def test_no_frontend_is_imported_unasked(package):
    if package == "sinkprop.torch":
        pytest.importorskip("torch", reason="sinkprop.torch needs torch")
    done = run(f"""
        import sys, {package}
        print([name for name in ("transformers", "sentence_transformers", "datasets") if name in sys.modules])
    """)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize("missing", ["torch", "sentence_transformers", "datasets", "accelerate"])
def test_the_error_without_the_extra_names_it(missing):
    done = run(f"""
        import importlib.util
        found = importlib.util.find_spec
        importlib.util.find_spec = lambda name, *rest: None if name == {missing!r} else found(name, *rest)
        import sinkprop.rerank
    """)
    assert done.returncode == 1
    assert 'pip install "sinkprop[rerank]"' in done.stderr.splitlines()[-1]
