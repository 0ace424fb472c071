"""Optional packages that are installed, found without importing them."""

from __future__ import annotations

import importlib.util

__all__ = ["installed"]


def installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False
