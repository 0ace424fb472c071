"""The error that is raised when a cluster cannot go on."""

__all__ = ["ClusterLost"]


class ClusterLost(RuntimeError):  # noqa: N818  # it is not the caller's error
    """The workers, or the scheduler, went away and did not come back: one line that says which.

    A checkpoint of the fit stays where it is; the same fit, on any cluster or on none, resumes from it.
    """
