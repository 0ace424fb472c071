"""The loss for sentence-transformers: minus the expected gain of a cross-encoder's lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sentence_transformers.util import batch_to_device, fullname
from torch import Tensor, nn

from sinkprop.objective.gains import Gain
from sinkprop.objective.normalization import Iterations
from sinkprop.objective.relaxations import Relaxation
from sinkprop.rerank.lists import Lists, check_mini_batch_size, check_scores
from sinkprop.rerank.replay import replayed_scores
from sinkprop.torch.losses.sinkprop import SinkPropLoss

__all__ = ["SinkPropListLoss"]


class SinkPropListLoss(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Minus the expected gain of lists of documents, a loss for sentence-transformers' CrossEncoderTrainer.

    Each row of the dataset has a query, a list of documents and a list of labels, which may be graded. Lists
    may differ in length. For Hugging Face's own Trainer, use `ListTrainer`.

    Parameters
    ----------
    model : CrossEncoder
        Cross-encoder with one output.
    gain : str or Gain, default "ndcg@10"
        Metric whose expected value is maximized, see `SinkPropLoss`.
    relaxation : str or Relaxation, optional
        Map from the scores to the pre-Sinkhorn matrix. By default, that of `SinkPropLoss`: a width that
        follows the spread of a list's scores, and a cross entropy that fades as they spread, so that a new
        head, which gives all documents nearly the same score, learns from the first step.
    n_iter : float, "converged" or Converged, default 5
        Number of Sinkhorn iterations.
    epsilon : float, default 1e-6
        Added to every entry of the pre-Sinkhorn matrix.
    activation_fn : Module, optional
        Function of the model's output whose values are the scores. By default, they are the output.
    mini_batch_size : int, optional
        Number of query-document pairs in each forward and backward pass. With it, the memory of a step does
        not grow with the length of the lists: all documents are scored without a graph, the gradient of the
        loss in the scores is computed, and the mini-batches are scored again to propagate it. This takes an
        additional forward pass. By default, all pairs of a batch are scored at once.

    Examples
    --------
    >>> from sentence_transformers import CrossEncoder
    >>> from sinkprop.rerank import SinkPropListLoss
    >>> model = CrossEncoder("microsoft/MiniLM-L12-H384-uncased", num_labels=1)  # doctest: +SKIP
    >>> loss = SinkPropListLoss(model, "ndcg@10", mini_batch_size=16)  # doctest: +SKIP
    >>> trainer = CrossEncoderTrainer(model=model, train_dataset=dataset, loss=loss)  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        gain: str | Gain = "ndcg@10",
        relaxation: str | Relaxation | None = None,
        *,
        n_iter: Iterations = 5,
        epsilon: float = 1e-6,
        activation_fn: nn.Module | None = None,
        mini_batch_size: int | None = None,
    ) -> None:
        super().__init__()
        if model.num_labels != 1:
            raise ValueError(
                f"model must give one score per document; got a model with num_labels={model.num_labels}. "
                "Load it with CrossEncoder(..., num_labels=1)."
            )
        check_mini_batch_size(mini_batch_size)
        self.model = model
        self.loss = SinkPropLoss(gain, relaxation, n_iter=n_iter, epsilon=epsilon)
        self.activation_fn = nn.Identity() if activation_fn is None else activation_fn
        self.mini_batch_size = mini_batch_size

    def forward(
        self,
        inputs: Sequence[Any],
        labels: Sequence[Tensor],
        prompt: str | None = None,
        task: str | None = None,
    ) -> Tensor:
        """Loss of a batch, the mean over its queries.

        Parameters
        ----------
        inputs : list of two lists
            Queries, and a list of documents for each.
        labels : list of Tensor
            Labels of each query's documents, not below 0.
        prompt : str, optional
            Prompt for the model's preprocessing.
        task : str, optional
            Task for the model's preprocessing.

        Returns
        -------
        Tensor
            One number.

        Raises
        ------
        ValueError
            If a list is empty or has another number of labels, a label is negative or not finite, or a score
            is not finite. The message shows the query and the document.
        """
        lists = Lists.of(inputs, labels)
        size = self.mini_batch_size or len(lists.pairs)
        batches = [
            batch_to_device(
                self.model.preprocess(lists.pairs[at : at + size], prompt=prompt, task=task),
                self.model.device,
            )
            for at in range(0, len(lists.pairs), size)
        ]
        # the modules of the model write into the dictionary that they get
        scores = replayed_scores(lambda batch: self.model(dict(batch))["scores"], batches, self.model)
        scores, offsets = self.activation_fn(scores.float()), lists.offsets.to(scores.device)
        check_scores(scores, lists.offsets, lists.pairs)
        return self.loss(scores, lists.labels.to(scores.device), offsets=offsets)

    def get_config_dict(self) -> dict[str, Any]:
        """Settings of the loss for the model card.

        Returns
        -------
        dict
            The parameters by name.
        """
        return {
            "gain": str(self.loss.gain),
            "relaxation": "default" if self.loss.relaxation is None else str(self.loss.relaxation),
            "n_iter": self.loss.n_iter,
            "epsilon": self.loss.epsilon,
            "activation_fn": fullname(self.activation_fn),
            "mini_batch_size": self.mini_batch_size,
        }

    @property
    def citation(self) -> str:
        """BibTeX entry of the paper, for the model card."""
        return _CITATION


_CITATION = """
@article{adams2011ranking,
    title={Ranking via Sinkhorn Propagation},
    author={Adams, Ryan Prescott and Zemel, Richard S.},
    journal={arXiv preprint arXiv:1106.1925},
    year={2011}
}
"""
