"""Tasks on Dask workers that hold whole queries, and sums sent back; this package knows no model.

Users pass `cluster=` to a ranker; this package is what it then uses. Needs Dask: pip install
"sinkprop[dask]".
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sinkprop.cluster.errors import ClusterLost

if TYPE_CHECKING:
    from sinkprop.cluster.connecting import check_workers, connected
    from sinkprop.cluster.source import ClusterSource, cluster_source

__all__ = ["ClusterLost", "ClusterSource", "check_workers", "cluster_source", "connected"]

_LAZY = {
    "ClusterSource": "sinkprop.cluster.source",
    "cluster_source": "sinkprop.cluster.source",
    "check_workers": "sinkprop.cluster.connecting",
    "connected": "sinkprop.cluster.connecting",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'sinkprop.cluster' has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
