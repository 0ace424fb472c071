"""Folders that tests read: the repository's own, and the data that is not part of it."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("SINKPROP_DATA") or ROOT.parent / "shared" / "data")
