"""Node, and the packages of tests/browser: onnxruntime for Node and for browsers.

`npm ci --ignore-scripts --prefix tests/browser` installs them. Where Node or the packages are missing, the
tests are skipped with a reason; where SINKPROP_REQUIRE_JAVASCRIPT=1 that is an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from places import ROOT

FOLDER = ROOT / "tests" / "browser"
INSTALL = "npm ci --ignore-scripts --prefix tests/browser"


def packages() -> Path:
    """The folder of the installed packages."""
    missing = [name for name in ("onnxruntime-node", "onnxruntime-web") if not _installed(name)]
    if shutil.which("node") is None:
        _absent("needs node, which is not on the path")
    if missing:
        _absent(f"needs {' and '.join(missing)}: {INSTALL}")
    return FOLDER / "node_modules"


def _installed(name: str) -> bool:
    return (FOLDER / "node_modules" / name / "package.json").exists()


def _absent(reason: str) -> None:
    if os.environ.get("SINKPROP_REQUIRE_JAVASCRIPT") == "1":
        pytest.fail(f"{reason}; SINKPROP_REQUIRE_JAVASCRIPT=1")
    pytest.skip(reason)


def node(*arguments: object, cwd: Path | None = None) -> str:
    """What a program writes to the standard output."""
    command = ["node", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def web_runtime(folder: Path) -> None:
    """Copy what a browser needs of onnxruntime into a folder: its module, and the WebAssembly."""
    folder.mkdir(parents=True, exist_ok=True)
    dist = packages() / "onnxruntime-web" / "dist"
    for name in ("ort.wasm.min.mjs", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm"):
        shutil.copy(dist / name, folder)
