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
    def __init__(
        self,
        model: Any,
        gain: str | Gain = "ndcg@10",
        relaxation: str | Relaxation = "gaussian",
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
        lists = Lists.of(inputs, labels)
        size = self.mini_batch_size or len(lists.pairs)
        batches = [
            batch_to_device(
                self.model.preprocess(lists.pairs[at : at + size], prompt=prompt, task=task),
                self.model.device,
            )
            for at in range(0, len(lists.pairs), size)
        ]
        scores = replayed_scores(lambda batch: self.model(batch)["scores"], batches)
        scores = self.activation_fn(scores.float())
        check_scores(scores, lists.offsets, lists.pairs)
        return self.loss(scores, lists.labels.to(scores.device), offsets=lists.offsets.to(scores.device))

    def get_config_dict(self) -> dict[str, Any]:
        return {
            "gain": str(self.loss.gain),
            "relaxation": str(self.loss.relaxation),
            "n_iter": self.loss.n_iter,
            "epsilon": self.loss.epsilon,
            "activation_fn": fullname(self.activation_fn),
            "mini_batch_size": self.mini_batch_size,
        }

    @property
    def citation(self) -> str:
        return CITATION


CITATION = """
@article{adams2011ranking,
    title={Ranking via Sinkhorn Propagation},
    author={Adams, Ryan Prescott and Zemel, Richard S.},
    journal={arXiv preprint arXiv:1106.1925},
    year={2011}
}
"""
