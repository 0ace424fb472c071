"""All harnesses in a short form, one after the other.

    python fuzz/run.py

The exit status is 1 if any of them found something. fuzz/README.md says how each runs at full length.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
SHORT = (
    ("native.py", "--runs", "20000"),
    ("mutate.py", "--count", "900"),
    ("forks.py", "--parent", "predict", "--child", "load", "predict", "--ways", "os.fork"),
    ("sanitize.py", "--sets", "baseline"),
)


def main() -> int:
    bad = []
    for script, *options in SHORT:
        print(f"+ python fuzz/{script} {' '.join(options)}", flush=True)
        if subprocess.run([sys.executable, FOLDER / script, *options], check=False).returncode:
            bad.append(script)
    print(f"found something: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
