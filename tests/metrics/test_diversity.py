"""Metrics of diversity: arithmetic, a naive definition, TREC's program ndeval, awkward queries and errors."""

from __future__ import annotations

import re
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse

from sinkprop import Queries, evaluate, parse_metric
from sinkprop.data.checks import as_label_columns
from sinkprop.metrics import CONVENTIONS
from sinkprop.metrics.evaluation import check_metric, evaluate_blocks, values_by_query
from sinkprop.metrics.measures import parse_metrics

pyndeval = pytest.importorskip("pyndeval", reason="pyndeval, TREC's program ndeval")

BOTH = "alphandcg@1-5,alphandcg,erria@1-5,erria"


def gains_of(ordered: list[list[bool]], alpha: float) -> list[float]:
    """Gain at each rank, as the definition reads."""
    seen = [0] * len(ordered[0])
    gains = []
    for document in ordered:
        gains.append(sum((1 - alpha) ** c for a, c in zip(document, seen, strict=True) if a))
        seen = [c + a for a, c in zip(document, seen, strict=True)]
    return gains


def greedy(documents: list[list[bool]], alpha: float) -> list[list[bool]]:
    """The documents in the order of the greedy ideal ranking; of equal gains, the first document."""
    left, ranked = list(documents), []
    while left:
        gains = [gains_of([*ranked, document], alpha)[-1] for document in left]
        ranked.append(left.pop(next(i for i, g in enumerate(gains) if g >= max(gains) * (1 - 1e-9))))
    return ranked


def naive(metric: str, documents: list[list[bool]], scores: list[float], alpha: float) -> float:
    """One metric of one query; the documents are in input order."""
    name, _, at = metric.partition("@")
    k = int(at) if at else len(documents)
    ordered = [documents[i] for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i))]
    intents = sum(map(any, zip(*documents, strict=True)))
    if not intents:
        return 0
    if name == "erria":
        total = sum(g / rank for rank, g in enumerate(gains_of(ordered, alpha)[:k], 1))
        return total / (intents * sum((1 - alpha) ** (j - 1) / j for j in range(1, k + 1)))
    run, best = (
        sum(g / log2(rank + 1) for rank, g in enumerate(gains_of(one, alpha)[:k], 1))
        for one in (ordered, greedy(documents, alpha))
    )
    return run / best


def random_problem(
    seed: int, *, n: int = 200, n_queries: int = 12, n_intents: int = 4, relevant: float = 0.3
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Labels (N, I), distinct scores and unsorted query ids."""
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, n_intents)) < relevant).astype(float)
    return labels, rng.permutation(n) / 8 - 7, rng.integers(0, n_queries, n) + 100


class TestArithmetic:
    # Ranked as given: two documents of the first intent, one of both, one of none.
    labels = ((1, 0), (1, 0), (1, 1), (0, 0))
    scores = (4, 3, 2, 1)
    qid = (7, 7, 7, 7)
    # The greedy ideal ranking has the document of both intents first; its gains are 2, 1/2, 1/4 and 0.

    @pytest.mark.parametrize(
        ("metric", "expected"),
        [
            ("alphandcg@1", 1 / 2),
            ("alphandcg@2", (1 + 1 / 2 / log2(3)) / (2 + 1 / 2 / log2(3))),
            ("alphandcg@3", (1 + 1 / 2 / log2(3) + 5 / 4 / 2) / (2 + 1 / 2 / log2(3) + 1 / 4 / 2)),
            ("alphandcg", (1 + 1 / 2 / log2(3) + 5 / 4 / 2) / (2 + 1 / 2 / log2(3) + 1 / 4 / 2)),
            ("alphandcg@9", (1 + 1 / 2 / log2(3) + 5 / 4 / 2) / (2 + 1 / 2 / log2(3) + 1 / 4 / 2)),
            ("alphandcg(alpha=0)@2", (1 + 1 / log2(3)) / (2 + 1 / log2(3))),
            ("alphandcg(alpha=1)@3", (1 + 0 + 1 / 2) / (2 + 0 + 0)),
            ("alphandcg(alpha=0.2)@2", (1 + 0.8 / log2(3)) / (2 + 0.8 / log2(3))),
            ("erria@1", 1 / 2),
            ("erria@2", (1 + 1 / 2 / 2) / (2 * (1 + 1 / 2 / 2))),
            ("erria@3", (1 + 1 / 2 / 2 + 5 / 4 / 3) / (2 * (1 + 1 / 2 / 2 + 1 / 4 / 3))),
            ("erria", (1 + 1 / 2 / 2 + 5 / 4 / 3) / (2 * (1 + 1 / 2 / 2 + 1 / 4 / 3 + 1 / 8 / 4))),
            # the divisor has five terms, although there are four documents
            ("erria@5", (1 + 1 / 4 + 5 / 12) / (2 * (1 + 1 / 4 + 1 / 12 + 1 / 32 + 1 / 80))),
            ("erria(alpha=1)@3", (1 + 0 + 1 / 3) / 2),
            ("erria(alpha=0)@2", (1 + 1 / 2) / (2 * (1 + 1 / 2))),
        ],
    )
    def test_values(self, metric: str, expected: float) -> None:
        (value,) = evaluate(self.labels, self.scores, self.qid, metric).values()
        assert value == pytest.approx(expected, abs=1e-15)

    def test_the_greedy_ideal_takes_the_first_of_equal_documents(self) -> None:
        # The gains are 2, 2, 2; after the first document, {a, b}, the third, {c, d}, has 2 and the second 1.
        labels = [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
        assert evaluate(labels, [3, 1, 2], [1, 1, 1], "alphandcg@2")["alphandcg@2"] == 1
        # If {b, c} comes first, it is taken first, and either of the others adds 1 + 1/2 after it.
        labels = [[0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1]]
        value = evaluate(labels, [1, 3, 2], [1, 1, 1], "alphandcg@2")["alphandcg@2"]
        assert value == pytest.approx((2 + 2 / log2(3)) / (2 + 3 / 2 / log2(3)))
        assert value > 1

    def test_equal_gains_whose_sums_round_differently_are_equal(self) -> None:
        # After the first and the third document, which are ranked first, the gains of the others are sums of
        # 0.49, 0.49 and 0.7, in one or another order.
        labels = np.array(
            [[1, 1, 1, 1, 1], [1, 0, 1, 0, 1], [1, 1, 1, 1, 0], [0, 1, 0, 1, 1], [1, 1, 0, 0, 1]]
        )
        scores = [5, 4, 3, 2, 1]
        for columns in (labels, labels[:, ::-1]):
            (value,) = evaluate(columns, scores, [0] * 5, "alphandcg(alpha=0.3)").values()
            assert value == pytest.approx(naive("alphandcg", columns.astype(bool).tolist(), scores, 0.3))


class TestDefinition:
    @pytest.mark.parametrize("alpha", [0, 0.1, 0.4, 0.5, 0.9, 1])
    @pytest.mark.parametrize("relevant", [0.05, 0.3, 1])
    def test_random_queries(self, alpha: float, relevant: float) -> None:
        labels, scores, qid = random_problem(3, relevant=relevant)
        names = [str(metric) for metric in parse_metrics(BOTH)]
        asked = [
            parse_metric(f"{n.partition('@')[0]}(alpha={alpha}){n[n.index('@') :] if '@' in n else ''}")
            for n in names
        ]
        found = evaluate(labels, scores, qid, asked)
        for q, query in enumerate(found.queries):
            rows = np.flatnonzero(qid == query)
            documents = (labels[rows] > 0).tolist()
            for name, metric in zip(names, asked, strict=True):
                expected = naive(name, documents, scores[rows].tolist(), alpha)
                assert found.per_query[str(metric)][q] == pytest.approx(expected, abs=1e-12), metric

    @given(
        labels=st.integers(1, 40).flatmap(
            lambda width: st.lists(st.integers(0, 2**width - 1), min_size=1, max_size=7).map(
                lambda codes: [[code >> i & 1 for i in range(width)] for code in codes]
            )
        ),
        scores=st.lists(st.integers(0, 3), min_size=7, max_size=7),
    )
    def test_small_queries_with_ties_and_many_intents(
        self, labels: list[list[int]], scores: list[int]
    ) -> None:
        scores = scores[: len(labels)]
        found = evaluate(labels, scores, [5] * len(labels), BOTH)
        documents = [[bool(a) for a in document] for document in labels]
        for metric, value in found.items():
            assert value == pytest.approx(naive(metric, documents, scores, 0.5), abs=1e-12), metric

    def test_cutoffs_that_are_evaluated_together_or_alone_give_the_same(self) -> None:
        labels, scores, qid = random_problem(4)
        together = evaluate(labels, scores, qid, BOTH)
        for metric in together:
            assert evaluate(labels, scores, qid, metric)[metric] == pytest.approx(together[metric], abs=1e-15)

    def test_one_long_query(self) -> None:
        labels, scores, _ = random_problem(5, n=3000, n_intents=3)
        found = evaluate(labels, scores, np.zeros(3000), "alphandcg,alphandcg(alpha=0),erria")
        # without a loss for repetition, the ideal ranking sorts by the number of intents
        number, discount = labels.sum(axis=1), 1 / np.log2(np.arange(2, 3002))
        expected = (number[np.argsort(-scores)] * discount).sum() / (np.sort(number)[::-1] * discount).sum()
        assert found["alphandcg(alpha=0)"] == pytest.approx(expected, rel=1e-12)
        assert 0 < found["alphandcg"] < 1
        assert 0 < found["erria"] < 1


class TestNdeval:
    """pyndeval wraps TREC's program ndeval. Its ideal ranking breaks ties by descending document name."""

    cutoffs = (5, 10, 20)

    def qrels_and_run(
        self, labels: NDArray[Any], scores: NDArray[Any], qid: NDArray[Any]
    ) -> tuple[list[tuple[str, str, str, int]], list[tuple[str, str, float]]]:
        names = [f"d{99999 - row}" for row in range(len(labels))]
        qrels = [
            (str(qid[row]), str(intent), names[row], int(label))
            for row, document in enumerate(labels)
            for intent, label in enumerate(document)
        ]
        run = [(str(q), name, float(x)) for q, name, x in zip(qid, names, scores, strict=True)]
        return qrels, sorted(run)

    @pytest.mark.parametrize("seed", range(6))
    def test_alpha_ndcg_and_err_ia(self, seed: int) -> None:
        relevant, alpha = (0.05, 0.3, 0.7)[seed % 3], (0.5, 0.5, 0.5, 0.25, 0.75, 1)[seed]
        labels, scores, qid = random_problem(seed, n=400, n_queries=20, n_intents=1 + seed, relevant=relevant)
        qrels, run = self.qrels_and_run(labels, scores, qid)
        theirs = pyndeval.ndeval(
            qrels, run, [f"{m}@{k}" for m in ("alpha-nDCG", "ERR-IA") for k in self.cutoffs], alpha=alpha
        )
        for their, our in (("alpha-nDCG", "alphandcg"), ("ERR-IA", "erria")):
            for k in self.cutoffs:
                metric = parse_metric(f"{our}(alpha={alpha})@{k}")
                found = evaluate(labels, scores, qid, metric)
                expected = [theirs[str(q)][f"{their}@{k}"] for q in found.queries]
                np.testing.assert_allclose(found.per_query[str(metric)], expected, atol=1e-14)

    def test_through_ir_measures(self) -> None:
        ir_measures = pytest.importorskip("ir_measures")
        labels, scores, qid = random_problem(8)
        qrels, run = self.qrels_and_run(labels, scores, qid)
        given_qrels = [ir_measures.Qrel(q, name, label, intent) for q, intent, name, label in qrels]
        given_run = [ir_measures.ScoredDoc(*row) for row in run]
        for their, our in (("alpha_nDCG", "alphandcg"), ("ERR_IA", "erria")):
            measures = [ir_measures.parse_measure(f"{their}@{k}") for k in self.cutoffs]
            theirs = ir_measures.pyndeval.calc_aggregate(measures, given_qrels, given_run)
            found = evaluate(labels, scores, qid, [f"{our}@{k}" for k in self.cutoffs])
            np.testing.assert_allclose(list(found.values()), [theirs[m] for m in measures], atol=1e-14)

    def test_what_ndeval_does_otherwise(self) -> None:
        qrels = [("1", "1", "a", 1), ("1", "2", "b", 1), ("1", "3", "c", 1)]
        run = [("1", "a", 2.0), ("1", "x", 1.0)]
        theirs = pyndeval.ndeval(qrels, run, ["ERR-IA@1", "ERR-IA@2", "alpha-nDCG@2"])["1"]
        # relevant documents outside the ranking count, in the ideal ranking and in the number of intents
        assert theirs["ERR-IA@2"] == pytest.approx(1 / (3 * (1 + 1 / 4)))
        assert theirs["alpha-nDCG@2"] == pytest.approx(1 / (1 + 1 / log2(3)))
        assert theirs["ERR-IA@1"] == 1  # not divided by the number of intents at the cutoff 1 only
        ours = evaluate([[1, 0, 0], [0, 0, 0]], [2, 1], [1, 1], "erria@1,erria@2,alphandcg@2")
        assert ours == {"erria@1": 1, "erria@2": pytest.approx(1 / (1 + 1 / 4)), "alphandcg@2": 1}


class TestQueries:
    def test_one_document(self) -> None:
        assert set(evaluate([[1, 1]], [0.0], [1], BOTH)) == set(map(str, parse_metrics(BOTH)))
        assert evaluate([[1, 1]], [0.0], [1], "alphandcg,erria,alphandcg@3") == {
            "alphandcg": 1,
            "erria": 1,
            "alphandcg@3": 1,
        }

    def test_queries_without_a_relevant_document(self) -> None:
        labels, scores, qid = [[1, 0], [0, 0], [0, 0]], [1, 2, 3], ["a", "a", "b"]
        for empty, ndcg, err in ((0, 0, 0), (1, 1, 0), ("skip", np.nan, np.nan)):
            found = evaluate(labels, scores, qid, "alphandcg@2,erria@2", empty=empty)  # type: ignore[arg-type]
            np.testing.assert_equal(found.per_query["alphandcg@2"][1], ndcg)
            np.testing.assert_equal(found.per_query["erria@2"][1], err)
            assert "1 without a relevant document" in found.describe()
        assert evaluate(np.zeros((3, 2)), scores, qid, BOTH) == dict.fromkeys(
            map(str, parse_metrics(BOTH)), 0
        )

    def test_a_query_whose_relevant_document_is_not_in_the_first_column(self) -> None:
        found = evaluate([[0, 1], [0, 0]], [2, 1], [1, 1], "alphandcg,mrr")
        assert found == {"alphandcg": 1, "mrr": 0}

    def test_all_documents_relevant_to_all_intents(self) -> None:
        labels = np.ones((30, 3))
        values = evaluate(labels, np.arange(30), np.arange(30) % 2, BOTH).values()
        np.testing.assert_allclose(list(values)[:6], 1)  # alphandcg
        assert evaluate(labels, np.arange(30), np.arange(30) % 2, "erria")["erria"] == pytest.approx(1)

    def test_a_column_of_zeros_changes_nothing(self) -> None:
        labels, scores, qid = random_problem(6)
        wider = np.insert(labels, 2, 0, axis=1)
        assert evaluate(wider, scores, qid, BOTH) == pytest.approx(evaluate(labels, scores, qid, BOTH))

    def test_one_intent(self) -> None:
        labels, scores, qid = random_problem(7, n_intents=1)
        flat = evaluate(labels[:, 0], scores, qid, BOTH)
        assert flat == evaluate(labels, scores, qid, BOTH)
        assert flat == evaluate(Queries(np.zeros((200, 1)), labels[:, 0], qid), scores, metrics=BOTH)
        linear = evaluate(labels, scores, qid, "ndcg(gain=linear)@5")["ndcg(gain=linear)@5"]
        assert evaluate(labels, scores, qid, "alphandcg(alpha=0)@5")["alphandcg(alpha=0)@5"] == pytest.approx(
            linear
        )

    def test_order_of_rows_and_intents(self) -> None:
        labels, scores, qid = random_problem(9, n_intents=6)
        by_query = np.argsort(qid, kind="stable")
        found = evaluate(labels, scores, qid, BOTH)
        assert evaluate(labels[by_query], scores[by_query], qid[by_query], BOTH) == pytest.approx(found)
        assert evaluate(labels[:, ::-1], scores, qid, BOTH) == pytest.approx(found)

    def test_ties_keep_the_order_of_the_rows(self) -> None:
        labels = [[1, 0], [1, 0], [0, 1]]
        assert evaluate(labels, [1, 1, 1], [0, 0, 0], BOTH) == evaluate(labels, [3, 2, 1], [0, 0, 0], BOTH)

    def test_threshold(self) -> None:
        labels, scores, qid = [[2, 1], [0, 2], [1, 0]], [1, 2, 3], [4, 4, 4]
        binary = evaluate(np.array(labels) >= 2, scores, qid, "alphandcg@2,erria@2")
        assert evaluate(labels, scores, qid, "alphandcg@2,erria@2", threshold=2) == binary
        assert evaluate(labels, scores, qid, "alphandcg@2,erria@2", "mslr") == binary
        inside = evaluate(labels, scores, qid, "alphandcg(threshold=2)@2,erria(threshold=2)@2")
        assert list(inside.values()) == list(binary.values())

    def test_other_metrics_use_the_first_column(self) -> None:
        labels, scores, qid = random_problem(10)
        others = "ndcg@5,map,err,rbp@0.8,p@3"
        found = evaluate(labels, scores, qid, f"{others},erria@3")
        first = evaluate(labels[:, 0], scores, qid, others)
        assert {name: found[name] for name in first} == first
        assert "NDCG, MAP, ERR, RBP and P of the first of 4 columns of labels" in found.describe()
        assert "columns" not in first.describe()

    @pytest.mark.parametrize(
        "kind", [sparse.csr_matrix, sparse.csc_array, sparse.coo_matrix, sparse.lil_array]
    )
    def test_sparse_labels(self, kind: Any) -> None:
        labels, scores, qid = random_problem(11)
        assert evaluate(kind(labels), scores, qid, BOTH) == evaluate(labels, scores, qid, BOTH)
        assert evaluate(np.asfortranarray(labels), scores, qid, BOTH) == evaluate(labels, scores, qid, BOTH)

    def test_blocks_and_values_by_query(self) -> None:
        labels, scores, qid = random_problem(12)
        qid = np.sort(qid)
        whole = Queries(np.zeros((200, 1)), labels[:, 0], qid)
        found = evaluate(labels, scores, qid, "erria@3,alphandcg@3,ndcg@3,err")
        middle = int(whole.groups.offsets[5])
        blocks = [
            (
                labels[rows],
                scores[rows],
                Queries(np.zeros((len(qid[rows]), 1)), labels[rows, 0], qid[rows]).groups,
            )
            for rows in (slice(0, middle), slice(middle, None))
        ]
        in_blocks = evaluate_blocks(blocks, whole.groups.queries, 1.0, "erria@3,alphandcg@3,ndcg@3,err")
        assert in_blocks == found
        values = values_by_query(
            labels, scores, whole.groups, parse_metrics("erria@3"), CONVENTIONS["standard"]
        )
        np.testing.assert_array_equal(values["erria@3"], found.per_query["erria@3"])

    def test_query_weight(self) -> None:
        labels, scores, qid = [[1, 0], [0, 1], [1, 1], [0, 0]], [1, 2, 3, 4], [1, 1, 2, 2]
        found = evaluate(labels, scores, qid, "erria@2", query_weight=[3, 1])
        assert found["erria@2"] == pytest.approx((found.per_query["erria@2"] * [3, 1]).sum() / 4)


class TestNames:
    @pytest.mark.parametrize(
        ("text", "name"),
        [
            ("alpha-nDCG@10", "alphandcg@10"),
            ("alpha_ndcg", "alphandcg"),
            ("AlphaNDCG ( alpha = .4 ) @ 10", "alphandcg(alpha=0.4)@10"),
            ("alphandcg(alpha=0.50)@3", "alphandcg@3"),
            ("alphandcg(alpha=1)", "alphandcg(alpha=1)"),
            ("ERR-IA@20", "erria@20"),
            ("err_ia(threshold=2,alpha=0)", "erria(alpha=0,threshold=2)"),
        ],
    )
    def test_spellings(self, text: str, name: str) -> None:
        metric = parse_metric(text)
        assert str(metric) == name
        assert parse_metric(name) == metric

    def test_ranges_and_lookup(self) -> None:
        assert [str(m) for m in parse_metrics("err-ia@1-2,alphandcg(alpha=0.1)@2-3")] == [
            "erria@1",
            "erria@2",
            "alphandcg(alpha=0.1)@2",
            "alphandcg(alpha=0.1)@3",
        ]
        assert evaluate([1, 0], [1, 2], [1, 1], "erria@2")["ERR-IA@2"] == pytest.approx(1 / 2 / (1 + 1 / 4))

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("alphandcg(alpha=1.5)", "alphandcg: alpha must be from 0 to 1; got 1.5."),
            ("erria(alpha=-1)@5", "erria: alpha must be from 0 to 1; got -1."),
            ("erria(alpha=nan)@5", "erria: alpha must be a finite number; got nan."),
            ("erria(alpha=x)@5", "alpha must be a number; got 'x'."),
            ("erria(beta=0.5)@5", "'beta' is not an option; it takes alpha and threshold."),
            ("erria@0", "erria: k must be at least 1"),
            ("erria@2000000", "erria: k must be at most 1000000"),
            ("alfa-ndcg@5", "metric 'alfa-ndcg@5' is not known. Did you mean 'alpha-ndcg@5'?"),
            ("n-dcg@5", "metric 'n-dcg@5' is not known."),
        ],
    )
    def test_errors(self, text: str, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            parse_metric(text)

    def test_the_description_says_that_the_gain_of_the_convention_does_not_apply(self) -> None:
        text = evaluate([1, 0], [1, 2], [1, 1], "erria,alphandcg", "letor").describe()
        assert "ERRIA and ALPHANDCG with the gain and discount of their definitions" in text

    @pytest.mark.parametrize("ties", ["average", "worst", "best"])
    def test_ties_other_than_file(self, ties: Any) -> None:
        message = (
            f"erria: ties must be 'file', the order of the rows, for the metrics of diversity; got {ties!r}"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            evaluate([1, 0], [1, 2], [1, 1], "erria@2", ties=ties)
        with pytest.raises(ValueError, match="alphandcg: ties must be 'file'"):
            check_metric("alphandcg@2", "sklearn")


class TestLabels:
    def test_shapes(self) -> None:
        for labels in ([1, 0, 2], [[1], [0], [2]], sparse.csr_matrix([[1], [0], [2]]), np.array([1, 0, 2])):
            array = as_label_columns(labels, 3)
            assert array.dtype == np.float64
            np.testing.assert_array_equal(array, [1.0, 0.0, 2.0])
        matrix = as_label_columns(np.asfortranarray([[1, 0], [0, 3]]), 2)
        assert matrix.flags.c_contiguous
        np.testing.assert_array_equal(matrix, [[1, 0], [0, 3]])

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            ([[1, 0], [0, -1]], "labels must be finite and not below 0; row 1, column 1 holds -1.0."),
            ([[1, np.nan], [0, 1]], "labels must be finite and not below 0; row 0, column 1 holds nan."),
            ([[1, 0], [2.0**54, 1]], "labels must be finite and not above 2^53; row 1, column 0 holds"),
            (sparse.csr_matrix([[1.0, 0], [np.inf, 1]]), "row 1, column 0 holds inf."),
            ([[1], [-1]], "labels must be finite and not below 0; row 1 holds -1.0."),
            ([[1, 0]], "labels must have one row per row of scores: 2 rows, but 1 of labels."),
            (sparse.csr_matrix((3, 10**9)), "labels must have one row per row of scores: 2 rows, but 3"),
            (np.zeros((2, 0)), "labels must have at least one column, one per intent; got the shape (2, 0)."),
            (
                np.zeros((2, 2, 2)),
                "labels must have the shape (2,), or (2, I) with one column per intent; got",
            ),
            ([1, 0, 1], "labels must have one value per row of scores: 2 rows, but 3 labels."),
            ([["a", "b"], ["c", "d"]], "labels must be an array of real numbers; got"),
            (np.ma.array([[1, 0], [0, 1]], mask=[[0, 0], [1, 0]]), "row 1, column 0 is masked"),
        ],
    )
    def test_errors(self, labels: Any, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            evaluate(labels, [1, 2], [1, 1], "erria")

    def test_the_message_names_the_rows(self) -> None:
        with pytest.raises(ValueError, match="one row per row of X: 3 rows, but 2 of labels"):
            as_label_columns([[1, 0], [0, 1]], 3, rows_of="X")

    def test_an_object_that_only_looks_sparse(self) -> None:
        class Lookalike:
            nnz = 3

        with pytest.raises(
            ValueError, match="labels must be an array or a SciPy sparse matrix; got Lookalike"
        ):
            as_label_columns(Lookalike(), 3)
