"""A check for installed optional packages that does not import them."""

from __future__ import annotations

import importlib.util

__all__ = ["installed"]


def installed(name: str) -> bool:
    """Whether a package is installed."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
