"""References: descriptions of a model on labeled queries, and their files.

A file is a model file of the kind "DriftReference": JSON with a format version and a checksum. It holds
summaries of numbers per query, and no documents, times or paths.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.types import Floats, Integers
from sinkprop.data.queries import Queries
from sinkprop.drift.quantities import GROUPS, LEVELS, MOST_CATEGORIES, Description, Key, Plan, described
from sinkprop.metrics.conventions import Convention, as_convention
from sinkprop.metrics.measures import ExpectedReciprocalRank, Metric, parse_metrics
from sinkprop.metrics.ranking import one_score_per_row
from sinkprop.model_files import ModelFileError, read_model, saved_floats, saved_names, write_model

if TYPE_CHECKING:
    from sinkprop.estimator.base import BaseRanker
    from sinkprop.store import StoredQueries

__all__ = ["Blocks", "Reference", "Scorer", "Summary", "described_by", "fingerprint", "reference"]

KIND = "DriftReference"
LEAST_QUERIES = 10

Scorer: TypeAlias = "BaseRanker | ArrayLike"
Blocks: TypeAlias = "Callable[[Callable[[Queries], Any]], Iterable[Any]]"


@dataclass(frozen=True, eq=False)
class Summary:
    """Values of one quantity over the queries: their number, mean, standard deviation and distribution.

    n       Number of queries with a value.
    mean    Mean of the values.
    sd      Standard deviation of the values.
    edges   (B,) increasing quantiles of the values.
    counts  (2 B + 1,) number of values below edges[0], equal to it, between it and edges[1], ..., above
            edges[B - 1].
    """

    n: int
    mean: float
    sd: float
    edges: Floats
    counts: Integers

    @classmethod
    def of(cls, values: Floats, edges: Floats | None = None) -> Summary:
        """Summary of values, with the edges of another summary or with their own quantiles."""
        known = values[~np.isnan(values)]
        n = len(known)
        if edges is None:
            # the values themselves, so that a value that many queries share is an edge
            edges = np.unique(np.sort(known)[np.ceil(LEVELS * (n - 1)).astype(np.int64)] if n else known)
        places = np.searchsorted(edges, known, "left") + np.searchsorted(edges, known, "right")
        return cls(
            n,
            float(known.mean()) if n else np.nan,
            float(known.std(ddof=1)) if n > 1 else np.nan,
            edges,
            np.bincount(places, minlength=2 * len(edges) + 1),
        )


@dataclass(frozen=True, eq=False)
class Reference:
    """Description of a model, or of given scores, on labeled queries.

    Parameters
    ----------
    model : dict or None
        Class and checksum of the model, {"kind": ..., "sha256": ...}; None for given scores.
    n_queries : int
        Number of queries.
    n_documents : int
        Number of documents.
    metrics : tuple of str
        Names of the metrics.
    convention : Convention
        Convention of the metrics.
    features : tuple of str or None
        Names of the model's features; None for given scores.
    categories : dict
        Categories of each categorical feature, as text.
    quantities : dict
        Summary of each quantity, by its group and its name.
    distributions : dict
        Quantiles of the scores at 0, 5, ..., 100 %.
    labels : dict
        Share of the documents with each label.
    reliability : dict or None
        Forecast and observed relevance in ten bins; None without calibration.
    """

    model: dict[str, str] | None
    n_queries: int
    n_documents: int
    metrics: tuple[str, ...]
    convention: Convention
    features: tuple[str, ...] | None
    categories: dict[str, list[str]]
    quantities: dict[Key, Summary]
    distributions: dict[str, Floats]
    labels: dict[str, float]
    reliability: dict[str, Any] | None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the reference to a JSON file. Equal references give equal bytes.

        Parameters
        ----------
        path : str or path
            File to write.
        """
        write_model(path, KIND, self._state(), about=self._about())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Reference:
        """Read a reference that `save` wrote.

        Parameters
        ----------
        path : str or path
            File to read.

        Returns
        -------
        Reference
            The reference.

        Raises
        ------
        ModelFileError
            If the file is damaged, is in a newer format, or is not a reference.
        """
        model = read_model(path)
        if model.kind != KIND:
            raise ModelFileError(
                f"{os.fspath(path)}: holds a {model.kind}, not a reference; `sinkprop evaluate "
                "--save-reference` and `sinkprop.drift.reference` make one."
            )
        try:
            return cls._of_state(model.state)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"{os.fspath(path)}: the file is complete, but it is not a reference that this sinkprop can "
                f"read ({type(error).__name__}: {' '.join(str(error).split())})."
            ) from None

    def _about(self) -> dict[str, Any]:
        names = [name for group, name in self.quantities if group == GROUPS[0]]
        return {
            "queries": self.n_queries,
            "documents": self.n_documents,
            "means": {name: self.quantities[GROUPS[0], name].mean for name in names},
        }

    def _state(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "n_queries": self.n_queries,
            "n_documents": self.n_documents,
            "metrics": list(self.metrics),
            "convention": asdict(self.convention),
            "features": None if self.features is None else list(self.features),
            "categories": self.categories,
            "quantities": [
                {"group": group, "name": name, **asdict(summary)}
                for (group, name), summary in self.quantities.items()
            ],
            "distributions": self.distributions,
            "labels": self.labels,
            "reliability": self.reliability,
        }

    @classmethod
    def _of_state(cls, state: dict[str, Any]) -> Reference:
        quantities: dict[Key, Summary] = {}
        for own in state["quantities"]:
            key = own["group"], own["name"]
            if key[0] not in GROUPS or not isinstance(key[1], str) or key in quantities:
                raise ValueError(f"the quantity {key!r} is not of a known group, or occurs twice")
            quantities[key] = _summary_from(key[1], own)
        counts = [state[name] for name in ("n_queries", "n_documents")]
        if not all(type(count) is int and count > 0 for count in counts):
            raise ValueError("n_queries and n_documents must be whole numbers above 0")
        metrics, features = state["metrics"], state["features"]
        for name, texts in (("metrics", metrics), ("features", features or [])):
            saved_names(name, texts, len(texts))
        parse_metrics(metrics)
        model = state["model"]
        if model is not None and not all(isinstance(model[name], str) for name in ("kind", "sha256")):
            raise ValueError("model must have a kind and a sha256, both text")
        categories = {
            str(n): saved_names(n, values, len(values)) for n, values in state["categories"].items()
        }
        return cls(
            model,
            counts[0],
            counts[1],
            tuple(metrics),
            Convention(**state["convention"]),
            None if features is None else tuple(features),
            categories,
            quantities,
            {name: saved_floats(name, q, LEVELS.shape) for name, q in state["distributions"].items()},
            {str(label): float(share) for label, share in state["labels"].items()},
            None if state["reliability"] is None else dict(state["reliability"]),
        )


def _summary_from(name: str, own: dict[str, Any]) -> Summary:
    edges, counts, n = own["edges"], own["counts"], own["n"]
    edges = saved_floats(f"edges of {name!r}", edges, (np.size(edges),))
    if type(n) is not int or n < 0 or not isinstance(counts, np.ndarray) or counts.dtype.kind not in "iu":
        raise ValueError(f"n and the counts of {name!r} must be whole numbers, not below 0")
    fits = counts.shape == (2 * len(edges) + 1,) and counts.sum() == n and counts.min() >= 0
    if not fits or (np.diff(edges) <= 0).any():
        raise ValueError(f"the counts of {name!r} must sum to n and fit increasing edges")
    mean, sd = float(own["mean"]), float(own["sd"])
    if np.isfinite([mean, sd]).tolist() != [n > 0, n > 1] or sd < 0:
        raise ValueError(f"the mean and the standard deviation of {name!r} must be numbers")
    return Summary(n, mean, sd, edges, counts.astype(np.int64))


def reference(
    scorer: Scorer,
    queries: Queries | StoredQueries,
    *,
    metrics: str | Iterable[str] = "ndcg@10,map",
    convention: str | Convention = "standard",
) -> Reference:
    """Describe a model on labeled queries, to compare it with newer queries later.

    Take queries that the model was not trained on, or its metrics will seem to fall on all others. What is
    kept are summaries of numbers per query: metrics, labels, the calibration, scores, and the features.

    Parameters
    ----------
    scorer : fitted ranker, or array of shape (N,)
        Model, or scores of the documents; then the features are not described.
    queries : Queries or StoredQueries
        Labeled queries, at least ten.
    metrics : str or iterable of str, default "ndcg@10,map"
        Metrics.
    convention : str or Convention, default "standard"
        Convention of the metrics; see `evaluate`.

    Returns
    -------
    Reference
        The description, with a method `save`.

    Examples
    --------
    >>> from sinkprop import datasets
    >>> from sinkprop.baselines import RegressionRanker
    >>> fold = datasets.load_pydocs(1)
    >>> ranker = RegressionRanker(penalty=0.1, normalization="standard").fit(fold.train)
    >>> then = reference(ranker, fold.vali)
    >>> then.n_queries, round(then.quantities["quality", "ndcg@10"].mean, 2) > 0.5
    (32, True)
    """
    return reference_of(scorer, queries, parse_metrics(metrics), as_convention(convention))


def reference_of(
    scorer: Scorer,
    queries: Queries | StoredQueries,
    metrics: tuple[Metric, ...],
    convention: Convention,
    *,
    blocks: Blocks | None = None,
) -> Reference:
    """`reference`; `blocks` applies a function to the blocks of the queries, such as with a progress line."""
    if not isinstance(queries, Queries):
        queries.require_labels("a reference")
    if convention.max_grade is None and any(isinstance(m, ExpectedReciprocalRank) for m in metrics):
        # ERR depends on the highest grade, which must be the same for the queries to come
        largest = queries.y.max() if isinstance(queries, Queries) else queries.largest_label
        convention = replace(convention, max_grade=float(largest))
    categories = {
        name: list(dict.fromkeys(map(str, values)))[:MOST_CATEGORIES]
        for name, values in queries.categories.items()
    }
    plan = Plan(metrics, convention, True, categories, queries.n_queries, len(queries))
    found, names = described_by(scorer, queries, plan, blocks=blocks)
    return Reference(
        fingerprint(scorer),
        queries.n_queries,
        len(queries),
        tuple(map(str, metrics)),
        convention,
        names,
        {} if names is None else {name: own for name, own in categories.items() if name in names},
        {key: Summary.of(values) for key, values in found.values.items()},
        found.distributions,
        found.labels,
        found.reliability,
    )


def described_by(
    scorer: Scorer, queries: Queries | StoredQueries, plan: Plan, *, blocks: Blocks | None = None
) -> tuple[Description, tuple[str, ...] | None]:
    """Description of queries, and the names of the features in it."""
    if queries.n_queries < LEAST_QUERIES:
        raise ValueError(
            f"queries must be at least {LEAST_QUERIES}, for differences between queries; got "
            f"{queries.n_queries}."
        )
    blocks = _plain_blocks(queries) if blocks is None else blocks
    ranker = _ranker(scorer)
    if ranker is None:
        return described(_sliced(one_score_per_row(scorer), queries, blocks), plan), None
    names = _feature_names(ranker, queries)
    scored = blocks(lambda block: _scored(ranker, block))
    return described(scored, plan, calibration=ranker.calibration_, names=names), names


def _ranker(scorer: Scorer) -> BaseRanker | None:
    """The scorer if it is a ranker; None if it is scores."""
    return cast("BaseRanker", scorer) if hasattr(scorer, "predict") else None


def _plain_blocks(queries: Queries | StoredQueries) -> Blocks:
    return lambda function: map(function, [queries] if isinstance(queries, Queries) else queries.blocks())


def _scored(ranker: BaseRanker, block: Queries) -> tuple[Queries, Floats]:
    """Return queries with the features in the order of the model, and scores by which the model ranks."""
    known = getattr(ranker, "feature_names_in_", None)
    if known is not None and block.feature_names is not None:
        given = list(block.feature_names)
        missing = [str(name) for name in known if name not in given]
        if missing:
            raise ValueError(f"queries lack the features {', '.join(map(repr, missing[:3]))} of the model.")
        columns = [given.index(name) for name in known]
        if columns != list(range(len(given))):
            block = replace(block, X=block.X[:, columns], feature_names=tuple(map(str, known)))
    if block.n_features != ranker.n_features_in_:
        raise ValueError(
            f"queries must have the {ranker.n_features_in_} features of the model; got {block.n_features}."
        )
    relaxation = getattr(ranker, "relaxation_", None)
    by_score = relaxation is None or relaxation.width == 1
    return block, ranker.predict(block) if by_score else -ranker.rank(block).astype(np.float64)


def _sliced(
    scores: Floats, queries: Queries | StoredQueries, blocks: Blocks
) -> Iterator[tuple[Queries, Floats]]:
    if len(scores) != len(queries):
        raise ValueError(f"scores must be one per document, {len(queries)}; got {len(scores)}.")
    done = 0
    for block in blocks(lambda block: block):
        yield block, scores[done : done + len(block)]
        done += len(block)


def _feature_names(ranker: BaseRanker, queries: Queries | StoredQueries) -> tuple[str, ...]:
    known = getattr(ranker, "feature_names_in_", None)
    if known is None:
        known = queries.feature_names
    return tuple(map(str, known if known is not None else range(1, ranker.n_features_in_ + 1)))


def fingerprint(scorer: Scorer) -> dict[str, str] | None:
    """Class and checksum of a model, which do not depend on the version of sinkprop; None for scores."""
    ranker = _ranker(scorer)
    if ranker is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        ranker.save(Path(folder, "model"))
        data = Path(folder, "model").read_bytes()
    # the version of the library, and the checksums that cover it
    data = re.sub(rb'library\\?": \\?"[^"\\]*|[0-9a-f]{64}', b"", data)
    return {"kind": type(ranker).__name__, "sha256": hashlib.sha256(data).hexdigest()}
