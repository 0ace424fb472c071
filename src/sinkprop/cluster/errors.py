"""The error that is raised when a cluster cannot continue."""

__all__ = ["ClusterLost"]


class ClusterLost(RuntimeError):  # noqa: N818  # not named "Error": the caller made no mistake
    """Error for workers or a scheduler that were lost and did not come back; the message says which.

    If the ranker was made with `checkpoint=`, the checkpoint file remains. The same fit resumes from it, on
    any cluster or in a single process.
    """
