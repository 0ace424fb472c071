"""Hugging Face's Trainer for a sequence classifier that scores lists of documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

from torch import Tensor
from transformers import Trainer, TrainingArguments

from sinkprop.rerank.lists import Lists, check_mini_batch_size, check_scores
from sinkprop.rerank.replay import replayed_scores
from sinkprop.torch.losses.sinkprop import SinkPropLoss

__all__ = ["ListCollator", "ListTrainer"]

_LABELS = ("label", "labels", "score", "scores")


class ListCollator:
    """Tokenized pairs of a batch of queries, with their labels and the offsets of the queries.

    Each row of the dataset has a query, a list of documents and, in the column "label", "labels", "score" or
    "scores", a list of labels.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizer
        Tokenizer of the model.
    max_length : int, optional
        Largest number of tokens of a pair; by default the tokenizer's.

    Examples
    --------
    >>> from transformers import AutoTokenizer
    >>> tokenizer = AutoTokenizer.from_pretrained("cross-encoder/ms-marco-MiniLM-L6-v2")  # doctest: +SKIP
    >>> rows = [{"query": "a pet", "docs": ["a cat", "a tax"], "labels": [1, 0]}]
    >>> batch = ListCollator(tokenizer, max_length=256)(rows)  # doctest: +SKIP
    """

    def __init__(self, tokenizer: Any, max_length: int | None = None) -> None:
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
        names = list(rows[0])
        label = next((name for name in names if name in _LABELS), None)
        columns = [[row[name] for row in rows] for name in names if name != label]
        lists = Lists.of(columns, None if label is None else [row[label] for row in rows])
        queries, documents = map(list, zip(*lists.pairs, strict=True))
        tokens = self.tokenizer(
            queries,
            documents,
            padding=True,
            truncation=True,
            max_length=self.max_length,
            return_tensors="pt",
        )
        return {**tokens, "labels": lists.labels, "offsets": lists.offsets}


class ListTrainer(Trainer):  # type: ignore[misc]  # transformers is not checked here
    """Hugging Face's Trainer for a sequence classifier with one output, trained on lists by `SinkPropLoss`.

    Parameters
    ----------
    model : PreTrainedModel
        Sequence classifier with ``num_labels=1``, such as `AutoModelForSequenceClassification`.
    args : TrainingArguments, optional
        Arguments of the training. A batch size counts queries. The columns of the dataset are always kept.
    loss : SinkPropLoss, optional
        Loss of the scores, by default ``SinkPropLoss("ndcg@10")``.
    mini_batch_size : int, optional
        Number of pairs in each forward and backward pass, see `SinkPropListLoss`.
    max_length : int, optional
        Largest number of tokens of a pair, for the default `data_collator`, a `ListCollator`.
    **kwargs : object
        Further arguments of `transformers.Trainer`: `train_dataset`, whose rows are those of `ListCollator`,
        `processing_class`, the tokenizer, and others.

    Examples
    --------
    >>> ListTrainer(
    ...     model, args, SinkPropLoss("ndcg@5"), mini_batch_size=16,
    ...     train_dataset=dataset, processing_class=tokenizer,
    ... ).train()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        args: TrainingArguments | None = None,
        loss: SinkPropLoss | None = None,
        *,
        mini_batch_size: int | None = None,
        max_length: int | None = None,
        **kwargs: Any,
    ) -> None:
        check_mini_batch_size(mini_batch_size)
        if loss is not None and not isinstance(loss, SinkPropLoss):
            raise TypeError(f"loss must be a SinkPropLoss; got {type(loss).__name__}.")
        if model.config.num_labels != 1:
            raise ValueError(
                f"model must give one score per document; got num_labels={model.config.num_labels}. Load "
                "it with AutoModelForSequenceClassification.from_pretrained(..., num_labels=1)."
            )
        args = TrainingArguments() if args is None else copy(args)
        args.remove_unused_columns = False  # the collator reads the texts
        if kwargs.get("data_collator") is None:
            tokenizer = kwargs.get("processing_class")
            if tokenizer is None:
                raise ValueError("processing_class must be the model's tokenizer; got None.")
            kwargs["data_collator"] = ListCollator(tokenizer, max_length)
        super().__init__(model, args, **kwargs)
        self.model_accepts_loss_kwargs = False  # the loss is a mean over queries, not over tokens
        self.loss = SinkPropLoss("ndcg@10") if loss is None else loss
        self.mini_batch_size = mini_batch_size

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Loss of a batch of a `ListCollator`.

        Parameters
        ----------
        model : Module
            Sequence classifier.
        inputs : dict
            Tokens of the N pairs, and "labels" (N,) and "offsets" (Q + 1,).
        return_outputs : bool, default False
            Whether to return the scores, too.
        num_items_in_batch : int, optional
            Not used: the loss is a mean over queries.

        Returns
        -------
        Tensor, or tuple of Tensor and dict
            The loss; with `return_outputs`, also {"logits": scores (N,)}.
        """
        tokens = {name: value for name, value in inputs.items() if name not in ("labels", "offsets")}
        labels, offsets = inputs["labels"], inputs["offsets"]
        size = self.mini_batch_size or len(labels)
        batches = [
            {name: value[at : at + size] for name, value in tokens.items()}
            for at in range(0, len(labels), size)
        ]
        scores = replayed_scores(lambda batch: model(**batch).logits, batches, model).float()
        check_scores(scores, offsets)
        loss = self.loss(scores, labels, offsets=offsets)
        return (loss, {"logits": scores.detach()}) if return_outputs else loss
