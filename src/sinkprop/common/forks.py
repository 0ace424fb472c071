"""The one guard against waiting forever for OpenMP's threads in a forked process.

LightGBM, XGBoost and PyTorch compute with OpenMP. If a process has used OpenMP's threads and is then forked,
as pre-forking servers do, the threads exist only in the parent, and a child that uses more than one thread
waits for them forever. So every use of these libraries first calls `guard_forked_process`.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

__all__ = ["guard_forked_process", "guarded_import", "in_forked_process"]


class _Process:
    """Whether this process was forked, and the limit of its threads, which holds while it is referenced."""

    forked = False
    limited: tuple[str, ...] | None = None  # libraries that were loaded when the limit was set
    limit: Any = None


def _after_fork() -> None:
    _Process.forked, _Process.limited, _Process.limit = True, None, None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def in_forked_process() -> bool:
    """Whether this process was forked from one that had imported sinkprop.

    >>> in_forked_process()
    False
    """
    return _Process.forked


def guard_forked_process() -> None:
    """Limit OpenMP, LightGBM and PyTorch to one thread if this process was forked; otherwise do nothing.

    Call it before each use of a library that computes with OpenMP. Only a forked process that uses such a
    library through sinkprop is limited, and only after the library has been loaded.
    """
    if not _Process.forked:
        return
    loaded = tuple(name for name in ("lightgbm", "xgboost", "torch") if name in sys.modules)
    if _Process.limited == loaded:
        return
    from threadpoolctl import threadpool_limits

    _Process.limited, _Process.limit = loaded, threadpool_limits(1, user_api="openmp")
    if "lightgbm" in loaded:
        # LightGBM passes its own number of threads to OpenMP, which a parameter may have set before the fork
        sys.modules["lightgbm"].basic._LIB.LGBM_SetMaxThreads(1)
    if "torch" in loaded:
        sys.modules["torch"].set_num_threads(1)


def guarded_import(name: str, needed_by: str) -> Any:
    """Import a library of trees for use in this process; see `guard_forked_process`.

    If it is missing, raise an ImportError that says what needs it.
    """
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f'{needed_by} needs {name}: pip install "sinkprop[{name}]"') from error
    guard_forked_process()
    return module
