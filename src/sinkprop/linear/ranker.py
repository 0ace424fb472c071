"""SinkPropRanker: the paper's method as a scikit-learn estimator."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

from sinkprop.estimator.cluster_parameter import cloned, portable
from sinkprop.estimator.selection import Selection
from sinkprop.linear.annealed import AnnealedRanker
from sinkprop.linear.records import Annealing, Stage
from sinkprop.objective.gains import Gain
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import Relaxation

__all__ = ["SinkPropRanker"]


class SinkPropRanker(AnnealedRanker):
    """A linear ranker trained on the expected value of its metric, by Sinkhorn propagation.

    The fit starts from a ridge regression on the labels. L-BFGS then maximizes the expected gain minus a
    penalty on the squared distance to the weights of this regression, in stages of decreasing penalty. The
    model is an average of the stages, in which a stage counts the more, the better it ranks validation
    queries; see `Selection`. The recipe of the paper (Adams and Zemel 2011) anneals the smoothing instead,
    and selects one stage: `SinkPropRanker(annealing=Annealing(), start="least-squares",
    selection=Selection("validation", rule="best"))`.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain to maximize, such as "ndcg", "ndcg@10", "p@5" or "rbp@0.8". If it does not
        state the discount of NDCG, the discount is that of `convention`.
    relaxation : str or Relaxation, default "gaussian"
        Distribution over ranks. "gaussian" is the paper's smoothed indicator, and "laplace" has another
        kernel. "logit-logistic", "probit" and "beta" are partitioned measures with the scale 0.5, which all
        documents share; a `PartitionedMeasure` without a scale has two outputs per document. The annealing
        sets the sigma of a `SmoothedIndicator` and of a shared scale.
    penalty : float or sequence of float, optional
        Regularization strengths to try, or a single one. They apply to the weights of normalized features.
        None means nine penalties from 3 down to 0.0003 or, with annealing, six from 1e-6 to 0.1.
    annealing : Annealing, optional
        Values of sigma, from smooth to sharp, for each penalty. None means no annealing: sigma is 1, the
        spread of the scores of the regression, or the scale of the partitioned measure. With a scale for each
        document, an annealing repeats each penalty as often as it has values.
    start : {"ridge", "least-squares"}, default "ridge"
        Regression on the labels from which the fit starts. The validation queries choose the penalty of the
        ridge regression.
    selection : str or Selection, default "auto"
        How the penalty and the stage are chosen: a `Selection`, or the name of its method.
    normalization : {"standard", "query", "none"}, default "standard"
        Feature scaling. It is part of the model. "query" is LETOR's QueryLevelNorm; `predict` then needs qid.
    missing : {"indicator", "mean", "error"}, default "indicator"
        Treatment of missing values (NaN). "indicator" puts the mean of the feature in their place, and adds a
        column that says where the feature was missing, for each feature with missing values in training.
        "mean" adds no columns. "error" refuses missing values.
    resample : int, default 0
        Number of copies of each training query, with documents drawn at random with replacement. The paper
        uses 20; 0 trains on the queries themselves.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations. Each normalizes the columns, then the rows. With an extra half
        iteration, such as 5.5, the columns are normalized once more at the end. "converged" takes the limit
        of the iterations, and its gradient.
    epsilon : float, default 1e-6
        Constant added to every entry of the matrix (documents by ranks) before Sinkhorn normalization.
    max_iter : int, default 10
        Maximum number of L-BFGS iterations per stage.
    tol : float, default 1e-6
        Relative improvement below which a stage ends.
    top : int, default 200
        For partitioned measures: number of documents at the top of a ranking that the Hungarian algorithm
        reorders; see `choose_permutation`.
    metric : str, default "ndcg@10"
        Metric that `score` computes.
    convention : str, default "standard"
        Convention of the metrics; see `evaluate`.
    checkpoint : str or path, optional
        File to which the fit writes each finished stage and from which an unfinished fit resumes. It is
        removed when the fit is done.
    on_stage : callable, optional
        Function called with the `Stage` record of each finished stage, during the fit.
    n_threads : int, optional
        Number of threads. None uses all available CPU cores, or the number in `SINKPROP_NUM_THREADS`. Does
        not change the model.
    cluster : Dask client or cluster, str or int, optional
        Where the fit runs: a Dask `Client` or cluster, the address of a scheduler, or a number of worker
        processes on this machine. None means this process. Does not change the model.
    random_state : int, optional, default 0
        Seed of splits and resampling. The same seed gives the same model for any number of threads.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    coef_ : array of shape (D,) or (2, D)
        Weights of normalized features; two rows for a partitioned measure without a shared scale.
    intercept_ : float or array of shape (2,)
        Intercepts; 0 unless there are two outputs per document.
    sigma_ : float or None
        Smoothing of the model, in units of its scores; None if documents have their own scales.
    relaxation_ : Relaxation
        Relaxation of the model, with this sigma.
    fit_result_ : FitResult
        Record of every stage.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.

    Notes
    -----
    A row's weight multiplies the gain of its document. NDCG divides by the gain of the best possible
    ranking, which is computed with the same weights. A keyboard interrupt ends the fit with the best model
    found so far.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(X @ [1, 1, 0] + rng.normal(size=400), [0.5, 2])
    >>> ranker = SinkPropRanker().fit(X, y, qid=qid)
    >>> ranker.rank(X[:5], qid=qid[:5])
    array([2, 3, 1, 4, 5])
    """

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        relaxation: str | Relaxation = "gaussian",
        *,
        penalty: float | Sequence[float] | None = None,
        annealing: Annealing | None = None,
        start: str = "ridge",
        selection: str | Selection = "auto",
        normalization: str = "standard",
        missing: str = "indicator",
        resample: int = 0,
        n_iter: Iterations = 5,
        epsilon: float = 1e-6,
        max_iter: int = 10,
        tol: float = 1e-6,
        top: int = 200,
        metric: str = "ndcg@10",
        convention: str = "standard",
        checkpoint: str | os.PathLike[str] | None = None,
        on_stage: Callable[[Stage], None] | None = None,
        n_threads: int | None = None,
        cluster: Any = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.gain = gain
        self.relaxation = relaxation
        self.penalty = penalty
        self.annealing = annealing
        self.start = start
        self.selection = selection
        self.normalization = normalization
        self.missing = missing
        self.resample = resample
        self.n_iter = n_iter
        self.epsilon = epsilon
        self.max_iter = max_iter
        self.tol = tol
        self.top = top
        self.metric = metric
        self.convention = convention
        self.checkpoint = checkpoint
        self.on_stage = on_stage
        self.n_threads = n_threads
        self.cluster = cluster
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_clone__(self) -> Any:
        return cloned(self, super().__sklearn_clone__.__func__)

    def __getstate__(self) -> dict[str, Any]:
        return portable(super().__getstate__())
