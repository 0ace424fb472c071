"""The error that is raised when a cluster cannot continue."""

__all__ = ["ClusterLost"]


class ClusterLost(RuntimeError):  # noqa: N818  # it is not the caller's error
    """Error for workers or a scheduler that were lost and did not come back; the message says which.

    A checkpoint of the fit remains. The same fit resumes from it, on any cluster or in a single process.
    """
