"""The ranking explorer of a report: documents, scores and rank distributions of test queries.

The rank distributions of a `SmoothedIndicator`, and those of a calibrated ranker, are computed in the browser
from the scores and a few parameters. Other rank distributions are stored in the page as matrices with one
byte per entry.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sinkprop.calibration.widths import EPSILON, N_ITER
from sinkprop.common.types import Floats
from sinkprop.experiment.details import Details, FoldData
from sinkprop.experiment.results import Comparison, Result
from sinkprop.experiment.rounding import whole_number

__all__ = ["MatrixRoom", "explorer"]


MAX_CELLS = 1_400_000  # maximum number of matrix entries per report; lower if the report has many scores
_WIDTH = 0.25  # typical smoothing width of sinkprop's fits, divided by the standard deviation of the scores
_N_ITER, _EPSILON = 5, 1e-6
_LIMIT = 50  # iterations that the browser computes for the limit ("converged")


class MatrixRoom:
    """The number of matrix entries, one byte each, that a report can still store."""

    def __init__(self, comparison: Comparison) -> None:
        details = (r.details for r in comparison.results if r.details is not None)
        n_scores = sum(len(own) for one in details for own in one.scores)
        self.cells = max(MAX_CELLS // 7, MAX_CELLS - 6 * n_scores)

    def take(self, n: int) -> bool:
        """Reserve room for a matrix with n entries, and return True; return False if there is no room."""
        if n > self.cells:
            return False
        self.cells -= n
        return True


def explorer(
    results: Mapping[str, Mapping[str, Result]],
    data: Mapping[str, FoldData] | None,
    index: Mapping[tuple[str, int], int],
    room: MatrixRoom,
) -> dict[str, Any] | None:
    """Make the explorer's data for one data set, as plain data; None if the comparison has no details.

    results  {method: {fold: result}}.
    data     {fold: summary of the fold's queries}.
    index    {(fold, index of a test query in its fold): index of the query in the report's list of queries}.
    room     Room for matrices, which is reduced by the matrices that are stored.
    """
    if data is None or not any(r.details is not None for own in results.values() for r in own.values()):
        return None
    width, reason = _shared_width(results)
    distributions: dict[str, dict[str, Any]] = {}
    for method, by_fold in results.items():
        for fold, r in by_fold.items():
            if r.details is not None:
                shown = _shown_distribution(r.details, width, reason)
                distributions.setdefault(method, {})[fold] = shown
    queries: list[dict[str, Any]] = []
    without = 0
    for fold, own in data.items():
        for place, q in enumerate(own.shown):
            entry: dict[str, Any] = {
                "query": index[fold, q],
                "labels": [whole_number(x) for x in own.shown_labels[place]],
                "docids": None if own.shown_docids is None else list(own.shown_docids[place]),
                "scores": {},
                "matrices": {},
                "peaks": {},
            }
            for method, by_fold in results.items():
                details = by_fold[fold].details
                if details is None:
                    continue
                entry["scores"][method] = list(details.scores[place])
                if _has_matrix(details) and not _is_calibrated(details):
                    if room.take(own.lengths[q] ** 2):
                        entry["matrices"][method], entry["peaks"][method] = _packed(_matrix(details, place))
                    else:
                        without += 1
            queries.append(entry)
    notes = []
    total = len({(fold, i) for fold, own in data.items() for i in range(len(own.lengths))})
    if len(queries) < total:
        notes.append(f"The explorer has an even sample of {len(queries):,} of {total:,} test queries.")
    if without:
        notes.append(
            "Stored rank distributions take much space: queries beyond the first megabyte show the order of "
            "the documents only."
        )
    return {"note": " ".join(notes) or None, "queries": queries, "distributions": distributions}


def _shared_width(results: Mapping[str, Mapping[str, Result]]) -> tuple[float, str]:
    """Return the ratio of smoothing width to score spread for methods without a width, and its reason.

    The report needs a smoothing width to show rank distributions of methods that were trained without one. It
    multiplies the returned ratio by the standard deviation of the method's scores within queries. The reason
    for the ratio is a text, such as "a typical ratio for sinkprop's fits".
    """
    for method, by_fold in results.items():
        ratios = []
        for r in by_fold.values():
            own = None if r.details is None else r.details.distribution
            if r.details is not None and own is not None and _is_own(own):
                spread = _spread(r.details.scores)
                if spread > 0:
                    ratios.append(own["sigma"] / spread)
        if ratios:
            width = float(np.median(ratios))
            return width, f"the same ratio as for {method}"
    return _WIDTH, "a typical ratio for sinkprop's fits"


def _is_own(distribution: Mapping[str, Any]) -> bool:
    """Whether the browser can compute this rank distribution.

    This requires a `SmoothedIndicator` with a whole number of Sinkhorn iterations, at least one, or their
    limit.
    """
    n_iter = distribution.get("n_iter")
    if "kernel" not in distribution or n_iter is None:
        return False
    return isinstance(n_iter, str) or (n_iter >= 1 and n_iter == int(n_iter))


def _spread(scores: Sequence[Sequence[float]]) -> float:
    """Standard deviation, over the documents of all queries, of a score minus its query's mean score."""
    away = [np.asarray(own) - np.mean(own) for own in scores if len(own)]
    return float(np.concatenate(away).std()) if away else 0.0


def _shown_distribution(details: Details, width: float, reason: str) -> dict[str, Any]:
    own = details.distribution
    if details.calibration is not None and _is_calibrated(details):
        n_queries = details.calibration["report"]["n_calibrating"]
        return {
            "mixture": {**details.calibration["mixture"], "n_iter": N_ITER, "epsilon": EPSILON},
            "calibrated_on": n_queries,
            "own": True,
            "explanation": _CALIBRATED,
        }
    if own is not None and _is_own(own):
        return {
            "kernel": own["kernel"],
            "sigma": float(own["sigma"]),
            "n_iter": _LIMIT if isinstance(own["n_iter"], str) else int(own["n_iter"]),
            "epsilon": float(own["epsilon"]),
            "own": True,
            "explanation": _OWN,
        }
    settings = {"kernel": "gaussian", "n_iter": _N_ITER, "epsilon": _EPSILON}
    if own is not None and "family" in own:
        spread = _spread(details.scores) or 1.0
        return {**settings, "sigma": width * spread, "own": True, "explanation": _FAMILIES[own["family"]]}
    if own is not None:
        return {
            **settings,
            "kernel": own["kernel"],
            "sigma": float(own["sigma"]),
            "own": False,
            "explanation": (
                "The kernel and the width are the model's own, but it was trained with an incomplete "
                f"normalization ({own['n_iter']:g} iterations), after which a document's probabilities need "
                f"not sum to 1. The report shows the distribution after {_N_ITER} iterations."
            ),
        }
    spread = _spread(details.scores)
    return {
        **settings,
        "sigma": width * spread if spread > 0 else 1.0,
        "own": False,
        "explanation": (
            "This method gives scores only, no probabilities. To show how close its scores are, the report "
            f"smooths them with a Gaussian width of {width:.2g} times their spread within queries, {reason}."
        ),
    }


_CALIBRATED = (
    "Of the documents with probability .7 at a rank, about seven in ten belong there by their labels, for "
    "queries like those of the calibration."
)
_OWN = (
    "This is the model's own smoothing, with which it was trained. Documents whose scores differ by less "
    "than this width can easily exchange ranks; a difference of more than two or three widths makes that "
    "unlikely."
)
_PARTITIONED = (
    "This is the model's own distribution: each document has a distribution over the ranks, {}, and Sinkhorn "
    "normalization makes the distributions consistent with each other. The order is the most probable "
    "assignment of documents to ranks; the scores shown are these ranks with a minus sign."
)
_FAMILIES = {
    "logit-logistic": _PARTITIONED.format("logit-logistic"),
    "probit": _PARTITIONED.format("probit"),
    "beta": _PARTITIONED.format("a beta distribution"),
    "rank-binomial": (
        "This is the model's own distribution, that of SoftRank: scores have Gaussian noise of the width "
        "with which the model was trained, and a document's rank is one more than the number of documents "
        "above it."
    ),
}


def _is_calibrated(details: Details) -> bool:
    """Whether the scores of the details are those that the calibration is for."""
    return details.calibration is not None and details.parameters is None


def _has_matrix(details: Details) -> bool:
    return details.distribution is not None and "family" in details.distribution


def _matrix(details: Details, place: int) -> Floats:
    """Rank probabilities (n, n) of the n documents of the query with index `place` in `details.scores`."""
    own: Mapping[str, Any] = details.distribution or {}
    if own["family"] == "rank-binomial":
        from sinkprop.objective.rank_binomial import balanced_distribution

        return balanced_distribution(np.asarray(details.scores[place]), own["sigma"], own["balance"])
    from sinkprop.objective.rank_distribution import doubly_stochastic
    from sinkprop.objective.relaxations import PartitionedMeasure

    relaxation = PartitionedMeasure(own["family"], own.get("sigma"))
    given = details.parameters if relaxation.width == 2 else details.scores
    x = np.asarray((given or ())[place], dtype=np.float64)
    return doubly_stochastic(x, relaxation=relaxation, n_iter=own["n_iter"], epsilon=own["epsilon"])


def _packed(P: Floats) -> tuple[str, float]:
    """A matrix as bytes in base64, and the value that the byte 255 represents."""
    peak = float(P.max())
    scaled = np.round(P * (255 / peak)) if peak > 0 else np.zeros_like(P)
    return base64.b64encode(scaled.astype(np.uint8).tobytes()).decode("ascii"), peak
