"""The evaluator: metrics by arithmetic, intervals, significance, the first stage, and calibration."""

import numpy as np
import pytest
import rerankers

pytest.importorskip("sentence_transformers", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("datasets", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("accelerate", reason='needs pip install "sinkprop[test-frontends]"')

import torch

from sinkprop import RankCalibration, evaluate
from sinkprop.rerank import RerankingEvaluator, score_lists


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return rerankers.tiny_encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(5)
    return rerankers.lists(rng, rng.integers(1, 15, 60))


def test_scores_are_the_raw_outputs_in_the_order_of_the_lists(encoder, problem):
    queries, docs, _ = problem
    scores, qid = score_lists(encoder, queries, docs, batch_size=7)
    assert qid.tolist() == [q for q, texts in enumerate(docs) for _ in texts]
    encoder.eval()
    with torch.inference_mode():
        for q in (0, 17, 59):
            own = encoder(encoder.preprocess([(queries[q], text) for text in docs[q]]))["scores"]
            np.testing.assert_allclose(scores[qid == q], own.reshape(-1).numpy(), atol=1e-5)
    assert (scores < 0).any()  # no sigmoid


def test_metrics_by_arithmetic():
    class Fixed:
        model_card_data = type("Card", (), {"set_evaluation_metrics": lambda *_: None})()

        def predict(self, pairs, **options):
            return torch.tensor([[float(text)] for _, text in pairs])

    # of two queries the first is perfect, the second has its relevant document at rank 2
    evaluator = RerankingEvaluator(
        ["a", "b"],
        [["2", "1"], ["3", "2", "1"]],
        [[1, 0], [0, 1, 0]],
        "ndcg@10,mrr",
        first_stage=[[0.1, 0.2], [0.3, 0.2, 0.1]],
        name="x",
    )
    results = evaluator(Fixed())
    second = 1 / np.log2(3)
    assert results["x_ndcg@10"] == pytest.approx((1 + second) / 2)
    assert results["x_mrr"] == pytest.approx(0.75)
    assert results["x_mrr_first"] == pytest.approx(0.5)
    assert results["x_mrr_gain"] == pytest.approx(0.25)
    assert results["x_mrr_p"] == 1  # one difference says nothing
    assert (results["x_mrr_low"], results["x_mrr_high"]) == (0.5, 1.0)
    assert evaluator.primary_metric == "x_ndcg@10"
    assert evaluator.evaluation.per_query["mrr"].tolist() == [1, 0.5]


def test_intervals_and_significance_against_a_first_stage(encoder, problem):
    queries, docs, labels = problem
    evaluator = RerankingEvaluator(queries, docs, labels, first_stage="order")
    results = evaluator(encoder)
    scores, qid = score_lists(encoder, queries, docs)
    mine = evaluate(np.concatenate(labels), scores, qid, "ndcg@10,mrr,map")
    theirs = evaluate(np.concatenate(labels), -np.arange(len(qid)), qid, "ndcg@10,mrr,map")
    for name in ("ndcg@10", "mrr", "map"):
        apart = mine.per_query[name] - theirs.per_query[name]
        error = apart.std(ddof=1) / np.sqrt(len(apart))
        assert results[name] == pytest.approx(mine[name])
        assert results[f"{name}_first"] == pytest.approx(theirs[name])
        assert results[f"{name}_gain"] == pytest.approx(apart.mean())
        # a bootstrap interval is near the mean and two standard errors
        assert results[f"{name}_gain_low"] == pytest.approx(apart.mean() - 1.96 * error, abs=0.3 * error)
        assert results[f"{name}_gain_high"] == pytest.approx(apart.mean() + 1.96 * error, abs=0.3 * error)
        assert results[f"{name}_low"] < results[name] < results[f"{name}_high"]
        assert 0 < results[f"{name}_p"] <= 1


def test_errors(encoder, problem):
    queries, docs, labels = problem
    with pytest.raises(ValueError, match="first_stage must be 'order'"):
        RerankingEvaluator(queries, docs, labels, first_stage="bm25")
    with pytest.raises(ValueError, match="first_stage must have one score per document"):
        RerankingEvaluator(queries, docs, labels, first_stage=[[0.0]] * len(queries))
    with pytest.raises(ValueError, match="ndgc"):
        RerankingEvaluator(queries, docs, labels, "ndgc@10")
    with pytest.raises(ValueError, match="has no documents"):
        score_lists(encoder, ["ba"], [[]])


def test_scores_are_calibrated(encoder):
    rng = np.random.default_rng(1)
    queries, docs, _ = rerankers.lists(rng, [12] * 80)
    scores, qid = score_lists(encoder, queries, docs)
    z = (scores - scores.mean()) / scores.std()
    labels = (rng.random(len(z)) < 1 / (1 + np.exp(-2 * z))).astype(int)
    calibration = RankCalibration.fit(scores, labels, qid)
    p = calibration.relevance_probability(scores, qid)
    assert abs(p.mean() - labels.mean()) < 0.03
    assert np.corrcoef(p, 1 / (1 + np.exp(-2 * z)))[0, 1] > 0.9
