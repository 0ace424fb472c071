"""Both trainers end to end: NDCG rises, accumulation and bfloat16, the model card, saving and loading."""

import numpy as np
import pytest
import rerankers

pytest.importorskip("sentence_transformers", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("datasets", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("accelerate", reason='needs pip install "sinkprop[test-frontends]"')

import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder
from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
from transformers import AutoModelForSequenceClassification, AutoTokenizer, TrainingArguments

from sinkprop import evaluate
from sinkprop.rerank import ListCollator, ListTrainer, RerankingEvaluator, SinkPropListLoss, score_lists
from sinkprop.torch import SinkPropLoss

OPTIONS = {
    "num_train_epochs": 1,
    "per_device_train_batch_size": 4,
    "learning_rate": 1e-2,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "use_cpu": True,
    "seed": 1,
}


def dataset(seed, n_queries):
    rng = np.random.default_rng(seed)
    queries, docs, labels = rerankers.lists(rng, rng.integers(6, 14, n_queries))
    return Dataset.from_dict({"query": queries, "docs": docs, "labels": labels})


def ndcg(model, data):
    scores, qid = score_lists(model, data["query"], data["docs"])
    return evaluate(np.concatenate(data["labels"]), scores, qid, "ndcg@10")["ndcg@10"]


@pytest.fixture(scope="module")
def data():
    return dataset(0, 160), dataset(1, 40)


@pytest.mark.parametrize("options", [{}, {"gradient_accumulation_steps": 2, "bf16": True}])
def test_one_epoch_of_the_cross_encoder_trainer_raises_ndcg(tmp_path, data, options):
    train, test = data
    model = rerankers.tiny_encoder(tmp_path / "tiny", dropout=0.1)
    before = ndcg(model, test)
    evaluator = RerankingEvaluator(test["query"], test["docs"], test["labels"], name="words")
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(output_dir=str(tmp_path / "out"), **OPTIONS, **options),
        train_dataset=train,
        loss=SinkPropListLoss(model, mini_batch_size=16),
        evaluator=evaluator,
    )
    trainer.train()
    results = trainer.evaluate()
    after = ndcg(model, test)
    assert after > before + 0.1
    assert results["eval_words_ndcg@10"] == pytest.approx(after, abs=1e-6)
    assert evaluator.primary_metric == "words_ndcg@10"

    model.save_pretrained(str(tmp_path / "saved"))
    card = (tmp_path / "saved" / "README.md").read_text(encoding="utf-8")
    assert "SinkPropListLoss" in card
    assert "Ranking via Sinkhorn Propagation" in card  # the citation
    assert '"gain": "ndcg(discount=log2)@10"' in card
    assert '"mini_batch_size": 16' in card
    assert "ndcg@10_low" in card
    again = CrossEncoder(str(tmp_path / "saved"), device="cpu")
    pairs = [(test["query"][0], text) for text in test["docs"][0]]
    # the trainer leaves a model trained in bfloat16 under autocast
    atol = 2e-2 if options.get("bf16") else 1e-6
    np.testing.assert_allclose(again.predict(pairs), model.eval().predict(pairs), atol=atol)


def test_the_trainer_takes_the_step_of_the_loss_by_hand(tmp_path):
    train = dataset(2, 8)
    args = {**OPTIONS, "per_device_train_batch_size": 8, "optim": "sgd", "max_grad_norm": 0.0}
    model = rerankers.tiny_encoder(tmp_path / "tiny")
    hand = rerankers.tiny_encoder(tmp_path / "tiny")
    CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(
            output_dir=str(tmp_path / "out"), lr_scheduler_type="constant", **args
        ),
        train_dataset=train,
        loss=SinkPropListLoss(model, mini_batch_size=5),
    ).train()
    loss = SinkPropListLoss(hand)([train["query"], train["docs"]], [torch.tensor(y) for y in train["labels"]])
    loss.backward()
    moved = 0.0
    for p, q in zip(model.parameters(), hand.parameters(), strict=True):
        step = torch.zeros_like(q) if q.grad is None else q.grad
        torch.testing.assert_close(p, q - OPTIONS["learning_rate"] * step, rtol=1e-4, atol=1e-6)
        moved = max(moved, float(step.abs().max()))
    assert moved > 1e-4


@pytest.fixture
def classifier(tmp_path):
    folder = rerankers.tiny_folder(tmp_path / "tiny", dropout=0.1)
    return AutoModelForSequenceClassification.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_one_epoch_of_hugging_faces_trainer_raises_ndcg(tmp_path, data, classifier):
    (train, test), (model, tokenizer) = data, classifier
    args = TrainingArguments(output_dir=str(tmp_path / "out"), **OPTIONS)
    trainer = ListTrainer(
        model,
        args,
        SinkPropLoss("ndcg@10", "laplace"),
        mini_batch_size=16,
        train_dataset=train,
        eval_dataset=test,
        processing_class=tokenizer,
    )
    assert args.remove_unused_columns  # the caller's arguments stay as they are
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    found = trainer.predict(test)
    assert found.metrics["test_loss"] < before - 0.05
    assert found.predictions.shape == found.label_ids.shape == (sum(map(len, test["docs"])),)
    trainer.save_model(str(tmp_path / "saved"))
    encoder = CrossEncoder(str(tmp_path / "saved"), device="cpu")
    scores, qid = score_lists(encoder, test["query"], test["docs"])
    np.testing.assert_allclose(scores, found.predictions, atol=1e-5)
    assert evaluate(np.concatenate(test["labels"]), scores, qid, "ndcg@10")["ndcg@10"] > 0.6


def test_accumulated_batches_of_hugging_faces_trainer_are_averaged(tmp_path):
    train, steps = dataset(3, 8), []
    for batch, accumulated in ((8, 1), (2, 4)):
        folder = rerankers.tiny_folder(tmp_path / "tiny")
        model = AutoModelForSequenceClassification.from_pretrained(folder)
        args = {**OPTIONS, "per_device_train_batch_size": batch, "optim": "sgd", "max_grad_norm": 0.0}
        ListTrainer(
            model,
            TrainingArguments(
                output_dir=str(tmp_path / "out"), gradient_accumulation_steps=accumulated, **args
            ),
            train_dataset=train,
            processing_class=AutoTokenizer.from_pretrained(folder),
        ).train()
        steps.append(torch.cat([p.detach().reshape(-1) for p in model.parameters()]))
    start = AutoModelForSequenceClassification.from_pretrained(folder)
    start = torch.cat([p.detach().reshape(-1) for p in start.parameters()])
    torch.testing.assert_close(steps[1] - start, steps[0] - start, rtol=1e-3, atol=1e-6)
    assert (steps[0] - start).abs().max() > 1e-5


def test_errors_of_hugging_faces_trainer(tmp_path, classifier):
    model, tokenizer = classifier
    with pytest.raises(ValueError, match="mini_batch_size must be a whole number"):
        ListTrainer(model, mini_batch_size=0)
    with pytest.raises(TypeError, match="loss must be a SinkPropLoss; got MSELoss"):
        ListTrainer(model, loss=torch.nn.MSELoss())
    folder = rerankers.tiny_folder(tmp_path / "two", num_labels=2)
    with pytest.raises(ValueError, match="num_labels=2"):
        ListTrainer(AutoModelForSequenceClassification.from_pretrained(folder))
    with pytest.raises(ValueError, match="processing_class"):
        ListTrainer(model)
    collate = ListCollator(tokenizer, max_length=8)
    with pytest.raises(ValueError, match="the batch has none"):
        collate([{"query": "ba", "docs": ["be"]}])
    batch = collate([{"query": "ba", "docs": ["be bo bi ba bu de di"], "label": [1]}])
    assert batch["input_ids"].shape == (1, 8)
    with torch.no_grad():
        model.classifier.bias.fill_(float("inf"))
    args = TrainingArguments(output_dir=str(tmp_path / "out"), **OPTIONS)
    trainer = ListTrainer(model, args, train_dataset=dataset(0, 4), processing_class=tokenizer)
    with pytest.raises(ValueError, match=r"document 0 of query 0 of the batch the score inf.*learning rate"):
        trainer.train()


def test_hugging_faces_trainer_returns_the_scores_as_they_are(tmp_path, classifier):
    model, tokenizer = classifier
    with torch.no_grad():
        model.classifier.weight *= 1e-2  # as of a new head
    args = TrainingArguments(output_dir=str(tmp_path / "out"), **OPTIONS)
    trainer = ListTrainer(model, args, train_dataset=dataset(4, 4), processing_class=tokenizer)
    rows = [dict(row) for row in dataset(5, 3)]
    batch = ListCollator(tokenizer)(rows)
    loss, outputs = trainer.compute_loss(model.eval(), batch, return_outputs=True)
    tokens = {name: value for name, value in batch.items() if name not in ("labels", "offsets")}
    scores = model(**tokens).logits.reshape(-1)
    torch.testing.assert_close(outputs["logits"], scores, rtol=1e-5, atol=1e-6)
    spread = [own / own.std(correction=0) for own in scores.split([len(row["docs"]) for row in rows])]
    expected = SinkPropLoss("ndcg@10")(torch.cat(spread), batch["labels"], offsets=batch["offsets"])
    assert loss.item() == pytest.approx(expected.item(), abs=1e-5)
