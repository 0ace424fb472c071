"""An evaluator of cross-encoders with metrics, intervals and significance, and the scores of lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sentence_transformers.base.evaluation import BaseEvaluator

from sinkprop.common.types import Floats, Integers
from sinkprop.experiment.significance import bootstrap_intervals, randomization_test
from sinkprop.metrics.conventions import Convention
from sinkprop.metrics.evaluation import Evaluation, evaluate
from sinkprop.metrics.measures import Metric, parse_metrics
from sinkprop.rerank.lists import Lists, check_scores

__all__ = ["RerankingEvaluator", "score_lists"]


def score_lists(
    model: Any, queries: Sequence[Any], docs: Sequence[Sequence[Any]], *, batch_size: int = 32
) -> tuple[Floats, Integers]:
    """Scores of lists of documents by a cross-encoder, as the flat arrays that sinkprop's functions take.

    The scores are the model's outputs without its activation function: the sigmoid, which
    ``CrossEncoder.predict`` applies by default, gives large scores equal values.

    Parameters
    ----------
    model : CrossEncoder
        Cross-encoder with one output.
    queries : sequence of str
        Text of each query.
    docs : sequence of sequences of str
        Documents of each query.
    batch_size : int, default 32
        Number of pairs in one forward pass.

    Returns
    -------
    scores : array of shape (N,)
        Scores of the documents, query after query.
    qid : array of shape (N,)
        Number of the query of each document, from 0.

    Examples
    --------
    >>> class SharedWords:  # in the place of a CrossEncoder
    ...     def predict(self, pairs, **options):
    ...         return torch.tensor([float(len(set(q.split()) & set(d.split()))) for q, d in pairs])
    >>> score_lists(SharedWords(), ["red cat", "dog"], [["a cat", "a red cat"], ["a tax"]])
    (array([1., 2., 0.]), array([0, 0, 1]))
    """
    return _scores(model, Lists.of([queries, docs], [[0.0] * len(texts) for texts in docs]), batch_size)


def _scores(model: Any, lists: Lists, batch_size: int) -> tuple[Floats, Integers]:
    scores = model.predict(
        lists.pairs,
        batch_size=batch_size,
        activation_fn=torch.nn.Identity(),
        show_progress_bar=False,
        convert_to_tensor=True,
    )
    scores = scores.detach().cpu().double().reshape(-1)
    check_scores(scores, lists.offsets, lists.pairs)
    return scores.numpy(), np.repeat(np.arange(len(lists.offsets) - 1), np.diff(lists.offsets.numpy()))


def _first_scores(first_stage: Any, lists: Lists) -> Floats:
    """Scores (N,) whose order is the first stage's."""
    sizes = np.diff(lists.offsets.numpy())
    if isinstance(first_stage, str):
        if first_stage != "order":
            raise ValueError(f"first_stage must be 'order', or scores of the documents; got {first_stage!r}.")
        return np.concatenate([-np.arange(size, dtype=np.float64) for size in sizes])
    scores = [np.asarray(own, dtype=np.float64) for own in first_stage]
    if [own.shape for own in scores] != [(size,) for size in sizes]:
        raise ValueError(
            f"first_stage must have one score per document, for queries of {sizes.tolist()} documents; got "
            f"{[own.size for own in scores]} scores."
        )
    return np.concatenate(scores)


def _intervals(per_query: Mapping[str, Floats], names: Mapping[str, str]) -> dict[str, float]:
    """Mean and 95% bootstrap interval of each metric: {name: mean, name_low: ..., name_high: ...}."""
    values = np.stack([per_query[metric] for metric in names], axis=1)
    limits = bootstrap_intervals(values, [0] * len(values))
    results: dict[str, float] = {}
    for column, (low, high), name in zip(values.T, limits, names.values(), strict=True):
        results |= {name: float(np.nanmean(column)), f"{name}_low": float(low), f"{name}_high": float(high)}
    return results


class RerankingEvaluator(BaseEvaluator):  # type: ignore[misc]  # sentence-transformers is not checked here
    """Metrics of a cross-encoder on lists of documents, with intervals, next to the first stage's ranking.

    Pass it to `CrossEncoderTrainer` as `evaluator`, or call it with a model. Metrics follow
    `sinkprop.evaluate`: labels may be graded, a convention states the discount and what a query without a
    relevant document counts, and only the documents of the lists count, also in the ideal ranking.

    Parameters
    ----------
    queries : sequence of str
        Text of each query.
    docs : sequence of sequences of str
        Documents of each query.
    labels : sequence of sequences of float
        Labels of the documents.
    metrics : str, Metric or iterable of these, default "ndcg@10,mrr,map"
        Metrics. The first is the primary metric, which selects a checkpoint.
    first_stage : "order" or sequence of sequences of float, optional
        Ranking to compare with, such as BM25's: its scores of the documents, or "order" if the documents of
        each query are in its order.
    convention : str or Convention, default "standard"
        Convention of the metrics, see `sinkprop.evaluate`.
    name : str, default ""
        Name of the data, put before the names of the results.
    batch_size : int, default 32
        Number of pairs in one forward pass.

    Attributes
    ----------
    evaluation : Evaluation or None
        Result of `sinkprop.evaluate` in the last call, with the values of each query.
    first_evaluation : Evaluation or None
        The same of the first stage.

    Examples
    --------
    >>> evaluator = RerankingEvaluator(test["query"], test["docs"], test["labels"])  # doctest: +SKIP
    >>> results = evaluator(model)  # doctest: +SKIP
    >>> results["ndcg@10"], results["ndcg@10_low"], results["ndcg@10_high"]  # doctest: +SKIP
    (0.43, 0.38, 0.48)
    """

    def __init__(
        self,
        queries: Sequence[Any],
        docs: Sequence[Sequence[Any]],
        labels: Sequence[ArrayLike],
        metrics: str | Metric | Iterable[str | Metric] = "ndcg@10,mrr,map",
        *,
        first_stage: str | Sequence[ArrayLike] | None = None,
        convention: str | Convention = "standard",
        name: str = "",
        batch_size: int = 32,
    ) -> None:
        super().__init__()
        self.name, self.batch_size = name, batch_size
        self._lists = Lists.of([queries, docs], labels)
        self._metrics, self._convention = parse_metrics(metrics), convention
        self.primary_metric = f"{name}_{self._metrics[0]}" if name else str(self._metrics[0])
        self.evaluation: Evaluation | None = None
        self.first_evaluation: Evaluation | None = None
        if first_stage is not None:
            scores = _first_scores(first_stage, self._lists)
            self.first_evaluation = self._evaluate(scores)

    def _evaluate(self, scores: ArrayLike) -> Evaluation:
        sizes = np.diff(self._lists.offsets.numpy())
        qid = np.repeat(np.arange(len(sizes)), sizes)
        return evaluate(self._lists.labels.numpy(), scores, qid, self._metrics, self._convention)

    def __call__(
        self, model: Any, output_path: str | None = None, epoch: int = -1, steps: int = -1
    ) -> dict[str, float]:
        """Mean of each metric with its 95% bootstrap interval over the queries.

        Parameters
        ----------
        model : CrossEncoder
            Cross-encoder with one output.
        output_path : str, optional
            Not used; the results are returned, logged by the trainer, and put into the model card.
        epoch : int, default -1
            Epoch of the training, for the model card.
        steps : int, default -1
            Step of the training, for the model card.

        Returns
        -------
        dict of str to float
            For a metric "m": "m", "m_low" and "m_high", its mean and interval. With a first stage also
            "m_first", its mean; "m_gain", the mean difference to it, with "m_gain_low" and "m_gain_high"; and
            "m_p", the p-value of the paired randomization test.
        """
        found = self.evaluation = self._evaluate(_scores(model, self._lists, self.batch_size)[0])
        names = list(map(str, self._metrics))
        results = _intervals(found.per_query, {name: name for name in names})
        if self.first_evaluation is not None:
            first = self.first_evaluation
            apart = {name: found.per_query[name] - first.per_query[name] for name in names}
            p = randomization_test(np.stack([apart[name] for name in names], axis=1))
            results |= {f"{name}_first": first[name] for name in names}
            results |= _intervals(apart, {name: f"{name}_gain" for name in names})
            results |= {f"{name}_p": float(value) for name, value in zip(names, p, strict=True)}
        named: dict[str, float] = self.prefix_name_to_metrics(results, self.name)
        self.store_metrics_in_model_card_data(model, named, epoch, steps)
        return named

    def get_config_dict(self) -> dict[str, Any]:
        """Settings for the model card.

        Returns
        -------
        dict
            Convention of the metrics.
        """
        return {"convention": str(self._convention)}
