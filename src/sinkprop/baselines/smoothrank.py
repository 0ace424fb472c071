"""SmoothRank: the expected gain if each rank draws its document independently, in linear time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from sinkprop.estimator.selection import Selection
from sinkprop.linear.annealed import PENALTIES, AnnealedRanker
from sinkprop.linear.records import Annealing, Stage
from sinkprop.objective.gains import Gain

__all__ = ["SmoothRankRanker"]


class SmoothRankRanker(AnnealedRanker):
    """SmoothRank (Chapelle and Wu 2010): the expected gain if each rank draws its document independently.

    The distribution is the kernel of `SinkPropRanker` with its columns normalized over documents, once: half
    a Sinkhorn iteration. Rank k draws document j with the probability ::

        exp(-(f_j - f_s[k])^2 / (2 sigma^2)) / sum_i exp(-(f_i - f_s[k])^2 / (2 sigma^2))

    where f are the scores and s are the documents by decreasing score. Two ranks may draw the same document.
    Training starts from the least-squares weights, penalizes the squared distance to them, and proceeds in
    stages of decreasing smoothing. It uses L-BFGS instead of the paper's nonlinear conjugate gradients. It
    takes linear time, whereas the paper computes the probabilities of all documents and ranks.

    Parameters
    ----------
    gain : str or Gain, default "ndcg"
        Gain to maximize, such as "ndcg", "ndcg@10", "p@5" or "rbp@0.8". If it does not
        state the discount of NDCG, the discount is that of `convention`.
    penalty : float or sequence of float, default (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
        Regularization strengths to try, or a single one. They apply to the weights of normalized features.
    annealing : Annealing, optional
        Values of sigma, from smooth to sharp, one per stage. None means the paper's,
        `Annealing.smoothrank()`.
    selection : str or Selection, default "validation"
        How the penalty and the stage are chosen: a `Selection`, or the name of its method. The default takes
        the best ones on the validation set, as in the paper.
    normalization : {"standard", "query", "none"}, default "standard"
        Feature scaling. It is part of the model. "query" is LETOR's QueryLevelNorm; `predict` then needs qid.
    missing : {"indicator", "mean", "error"}, default "indicator"
        Treatment of missing values (NaN); see `SinkPropRanker`.
    max_iter : int, default 20
        Maximum number of L-BFGS iterations per stage.
    tol : float, default 1e-9
        Relative improvement below which a stage ends.
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
    random_state : int, optional, default 0
        Seed of the split, if the selection holds out queries or cross-validates.
    verbose : bool, default True
        Whether to show a progress line on a terminal.

    Attributes
    ----------
    coef_ : array of shape (D,)
        Weights of normalized features.
    intercept_ : float
        Always 0.
    sigma_ : float
        Smoothing of the model, in units of its scores.
    relaxation_ : Relaxation
        Relaxation of the model, with this sigma.
    fit_result_ : FitResult
        Record of every stage.
    scaling_ : Scaling
        Feature scaling of the model.
    missing_ : MissingValues or None
        Treatment of missing values; None if there were none in the fit. With indicators, `coef_` and
        `scaling_` have D + I columns: the features, then one indicator for each of I features.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(400, 3)), np.repeat(np.arange(20), 20)
    >>> y = np.digitize(X @ [1, 1, 0] + rng.normal(size=400), [0.5, 2])
    >>> SmoothRankRanker().fit(X, y, qid=qid).rank(X[:5], qid=qid[:5])
    array([2, 3, 1, 4, 5])
    """

    relaxation = "gaussian"
    n_iter = 0.5
    epsilon = 0.0
    resample = 0
    top = 1
    start = "least-squares"
    averages = False
    default_annealing = Annealing.smoothrank()

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        *,
        penalty: float | Sequence[float] = PENALTIES,
        annealing: Annealing | None = None,
        selection: str | Selection = "validation",
        normalization: str = "standard",
        missing: str = "indicator",
        max_iter: int = 20,
        tol: float = 1e-9,
        metric: str = "ndcg@10",
        convention: str = "standard",
        checkpoint: str | os.PathLike[str] | None = None,
        on_stage: Callable[[Stage], None] | None = None,
        n_threads: int | None = None,
        random_state: int | None = 0,
        verbose: bool = True,
    ) -> None:
        self.gain = gain
        self.penalty = penalty
        self.annealing = annealing
        self.selection = selection
        self.normalization = normalization
        self.missing = missing
        self.max_iter = max_iter
        self.tol = tol
        self.metric = metric
        self.convention = convention
        self.checkpoint = checkpoint
        self.on_stage = on_stage
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose
