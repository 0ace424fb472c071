"""SmoothRank: half a Sinkhorn iteration of the smoothed indicator, in linear time."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from sinkprop.estimator.selection import Selection
from sinkprop.linear.annealed import PENALTIES, AnnealedRanker
from sinkprop.linear.records import Annealing, Stage
from sinkprop.objective.gains import Gain

__all__ = ["SmoothRankRanker"]


class SmoothRankRanker(AnnealedRanker):
    """SmoothRank (Chapelle and Wu 2010): the gain expected when each rank picks its document by itself.

    The kernel of `SinkPropRanker` with its columns normalized over documents, once: half a Sinkhorn
    iteration. Rank k takes document j with the probability

        exp(-(f_j - f_s[k])^2 / (2 sigma^2)) / sum_i exp(-(f_i - f_s[k])^2 / (2 sigma^2)),

    where s are the documents by decreasing score; nothing keeps two ranks from taking the same one. Trained
    from the least-squares weights, with a penalty on the squared distance to them, at ever less smoothing, by
    L-BFGS in place of the paper's nonlinear conjugate gradients. Linear time, where the paper has a matrix.

    gain           what is maximized, see `SinkPropRanker`
    penalty        the penalties tried, or one of them
    annealing      `Annealing`: the sigmas, from smooth to sharp; None for the paper's
    selection      `Selection`, or the name of its method; the default is the paper's choice: the penalty and
                   the stage that are best on the validation set
    normalization, max_iter, tol, metric, convention, checkpoint, on_stage, n_threads, random_state, verbose
                   as of `SinkPropRanker`

    After `fit`: `coef_` (D,), the weights of normalized features; `intercept_`; `sigma_`; `fit_result_`, the
    record of every stage; `scaling_`.

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
    default_annealing = Annealing.smoothrank()

    def __init__(
        self,
        gain: str | Gain = "ndcg",
        *,
        penalty: float | Sequence[float] = PENALTIES,
        annealing: Annealing | None = None,
        selection: str | Selection = "validation",
        normalization: str = "standard",
        max_iter: int = 20,
        tol: float = 1e-9,
        metric: str = "ndcg@10",
        convention: str = "letor",
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
        self.max_iter = max_iter
        self.tol = tol
        self.metric = metric
        self.convention = convention
        self.checkpoint = checkpoint
        self.on_stage = on_stage
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose
