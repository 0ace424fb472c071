"""Members inside the model file of an AutoRanker, as plain data.

A ranker becomes the state that its own model file would hold. A network has a safetensors file of its own
and becomes the bytes of this file in base64.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sinkprop.auto.members import KINDS, member_class
from sinkprop.common.packages import installed
from sinkprop.estimator.base import BaseRanker, from_record, record_of

__all__ = ["member_from", "member_state"]

_LINE = 96  # characters of base64 per line


def member_state(name: str, ranker: BaseRanker) -> dict[str, Any]:
    """Return a fitted ranker of the member `name` as a dict of values that a model file can hold."""
    if name != "networks":
        return {"state": record_of(ranker)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network"
        ranker.save(path)
        text = base64.b64encode(path.read_bytes()).decode("ascii")
    return {"safetensors": [text[i : i + _LINE] for i in range(0, len(text), _LINE)]}


def member_from(name: str, state: Mapping[str, Any]) -> BaseRanker:
    """Rebuild the ranker that `member_state` described.

    Raises a ValueError if the state is not valid, and an ImportError if the member's package is missing.
    """
    if name not in KINDS:
        raise ValueError(f"the member {str(name)!r} is not one of {', '.join(KINDS)}")
    needs = KINDS[name].needs
    if needs is not None and not installed(needs):
        raise ImportError(
            f'the model has {name} as a member, which needs {needs}: pip install "sinkprop[{needs}]"'
        )
    ranker = member_class(name)
    if name != "networks":
        return from_record(ranker, f"the member {name}", state["state"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "network"
        path.write_bytes(base64.b64decode("".join(state["safetensors"]), validate=True))
        return ranker.load(path)
