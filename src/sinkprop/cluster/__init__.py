"""Run tasks on the Dask workers that hold the queries, and combine the results; usable for any model.

You need this package only to write your own tasks. To train on a cluster, pass `cluster=` to a ranker, which
uses this package itself. Needs Dask: pip install "sinkprop[dask]".
"""

from typing import TYPE_CHECKING

from sinkprop.cluster.errors import ClusterLost
from sinkprop.common.lazy import lazy_names

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

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
