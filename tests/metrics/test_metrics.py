"""Metrics: arithmetic, a naive definition, others' programs, brute force over ties, and a published row."""

from __future__ import annotations

import copy
import itertools
import json
import lzma
import math
import pickle
import re
import shutil
from dataclasses import replace
from fractions import Fraction
from io import BytesIO
from math import log2
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from places import DATA

import sinkprop
from sinkprop import Convention, evaluate, parse_metric, parse_metrics, ranking
from sinkprop.metrics import CONVENTIONS, Metric
from sinkprop.metrics.measures import FORMS

EVERY = "ndcg,ndcg@1-7,dcg,dcg@3,meanndcg,p@1-7,recall@3,hit@2,map,map@3,mrr,mrr@2,err,err@4,rbp@0.7,rbp@0"


def naive(metric: str, labels: list[float], c: Convention, max_grade: float) -> float:
    """One metric of one query, labels in rank order, as its definition reads; NaN where it is left out."""
    name, _, at = metric.partition("@")
    n, k = len(labels), int(at) if at and name != "rbp" else len(labels)

    def gain(r: float) -> float:
        return 2**r - 1 if c.gain == "exponential" else r

    def discount(rank: int) -> float:
        if c.discount == "log2":
            return 1 / log2(rank + 1)
        return 1 if rank <= 2 else 1 / log2(rank)

    def dcg(ordered: list[float], k: int) -> float:
        return sum(gain(r) * discount(rank) for rank, r in enumerate(ordered[:k], 1))

    relevant = [r >= c.threshold for r in labels]
    graded = name in ("ndcg", "dcg", "meanndcg", "err", "rbp")
    if not any(r > 0 for r in labels) if graded else not any(relevant):
        if c.empty == "skip":
            return math.nan
        return c.empty if name in ("ndcg", "meanndcg", "map", "mrr", "recall", "hit") else 0
    ideal = sorted(labels, reverse=True)
    if name == "ndcg":
        return 0 if at and n < k and c.short_ndcg == "zero" else dcg(labels, k) / dcg(ideal, k)
    if name == "dcg":
        return 0 if at and n < k and c.short_ndcg == "zero" else dcg(labels, k)
    if name == "meanndcg":
        return sum(dcg(labels, j) / dcg(ideal, j) for j in range(1, n + 1)) / n
    if name == "p":
        if n < k and c.short_p == "zero":
            return 0
        return sum(relevant[:k]) / (min(k, n) if c.short_p == "documents" else k)
    if name == "recall":
        return sum(relevant[:k]) / sum(relevant)
    if name == "hit":
        return float(any(relevant[:k]))
    if name == "map":
        precisions = [sum(relevant[: i + 1]) / (i + 1) for i in range(min(k, n)) if relevant[i]]
        return sum(precisions) / (min(sum(relevant), k) if c.map_at == "reachable" else sum(relevant))
    if name == "mrr":
        return next((1 / (i + 1) for i in range(min(k, n)) if relevant[i]), 0)
    if name == "err":
        value, going = 0.0, 1.0
        for rank, r in enumerate(labels[:k], 1):
            stop = (2**r - 1) / 2**max_grade
            value += going * stop / rank
            going *= 1 - stop
        return value
    assert name == "rbp"
    return (1 - float(at)) * sum(r * float(at) ** i for i, r in enumerate(labels))


def by_query(labels: Any, scores: Any, qid: Any) -> dict[Any, tuple[list[float], list[float]]]:
    """{id: (labels, scores)}, by first appearance."""
    found: dict[Any, tuple[list[float], list[float]]] = {}
    for y, x, q in zip(np.asarray(labels).tolist(), np.asarray(scores).tolist(), list(qid), strict=True):
        mine = found.setdefault(q, ([], []))
        mine[0].append(y)
        mine[1].append(x)
    return found


def in_rank_order(labels: list[float], scores: list[float]) -> list[float]:
    return [labels[i] for i in sorted(range(len(labels)), key=lambda i: (-scores[i], i))]


def random_problem(
    seed: int, *, n: int = 300, n_queries: int = 30, grades: int = 5, relevant: float = 0.4
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Labels, distinct scores and unsorted ids; some queries are short, some have no relevant document."""
    rng = np.random.default_rng(seed)
    qid = rng.integers(0, n_queries, n) + 1000
    labels = rng.integers(0, grades, n) * (rng.random(n) < relevant)
    return labels.astype(float), rng.permutation(n) / 8 - 7, qid


class TestArithmetic:
    # In rank order the labels are 0, 2, 1, 0: the last document is scored highest.
    labels = (2, 1, 0, 0)
    scores = (0.7, 0.1, -0.5, 0.9)

    @pytest.mark.parametrize(
        ("metric", "letor", "standard"),
        [
            ("ndcg@1", 0, 0),
            ("ndcg@2", (0 + 3) / (3 + 1), (3 / log2(3)) / (3 + 1 / log2(3))),
            (
                "ndcg@3",
                (0 + 3 + 1 / log2(3)) / (3 + 1 + 0),
                (0 + 3 / log2(3) + 1 / log2(4)) / (3 + 1 / log2(3)),
            ),
            ("ndcg", (3 + 1 / log2(3)) / (3 + 1), (3 / log2(3) + 1 / 2) / (3 + 1 / log2(3))),
            ("ndcg@10", 0, (3 / log2(3) + 1 / 2) / (3 + 1 / log2(3))),
            ("dcg@3", 3 + 1 / log2(3), 3 / log2(3) + 1 / 2),
            ("p@1", 0, 0),
            ("p@2", 1 / 2, 1 / 2),
            ("p@4", 2 / 4, 2 / 4),
            ("p@5", 0, 2 / 5),
            ("recall@2", 1 / 2, 1 / 2),
            ("hit@1", 0, 0),
            ("hit@2", 1, 1),
            ("map", (1 / 2 + 2 / 3) / 2, (1 / 2 + 2 / 3) / 2),
            ("map@2", (1 / 2) / 2, (1 / 2) / 2),
            ("mrr", 1 / 2, 1 / 2),
            ("mrr@1", 0, 0),
            ("err", 3 / 4 / 2 + (1 - 3 / 4) * 1 / 4 / 3, 3 / 4 / 2 + (1 - 3 / 4) * 1 / 4 / 3),
            ("err@2", 3 / 4 / 2, 3 / 4 / 2),
            ("err(max_grade=4)@2", 3 / 16 / 2, 3 / 16 / 2),
            ("rbp@0.5", 0.5 * (2 * 0.5 + 1 * 0.25), 0.5 * (2 * 0.5 + 1 * 0.25)),
            ("rbp(threshold=1)@0.5", 0.5 * (0.5 + 0.25), 0.5 * (0.5 + 0.25)),
            ("rbp(threshold=2)@0.5", 0.5 * 0.5, 0.5 * 0.5),
            ("p(threshold=2)@2", 1 / 2, 1 / 2),
            ("map(threshold=2)", 1 / 2, 1 / 2),
            ("ndcg(discount=log2,gain=linear)@2", (2 / log2(3)) / (2 + 1 / log2(3)), None),
            ("ndcg(discount=letor)@2", 3 / 4, 3 / 4),
        ],
    )
    def test_one_query(self, metric: str, letor: float, standard: float | None) -> None:
        for convention, expected in (("letor", letor), ("standard", letor if standard is None else standard)):
            found = evaluate(self.labels, self.scores, ["q"] * 4, metric, convention)
            assert list(found) == [metric]
            assert found[metric] == pytest.approx(expected, rel=1e-15, abs=0)

    def test_mean_ndcg(self) -> None:
        terms = [0, 3 / 4, (3 + 1 / log2(3)) / 4, (3 + 1 / log2(3)) / 4]
        found = evaluate(self.labels, self.scores, [0] * 4, "meanndcg", "letor4")
        assert found["meanndcg"] == pytest.approx(sum(terms) / 4, rel=1e-15)

    def test_a_mean_over_queries_that_are_mixed_up(self) -> None:
        #        a: 1 0 (in rank order)      b: 0 0       c: 2
        labels = [0, 0, 1, 2, 0]
        scores = [5, 1, 9, 0, 2]
        qid = ["a", "b", "a", "c", "b"]
        found = evaluate(labels, scores, qid, "ndcg@1,ndcg@2,p@2", "letor")
        assert found.queries.tolist() == ["a", "b", "c"]
        np.testing.assert_array_equal(found.per_query["ndcg@1"], [1, 0, 1])
        np.testing.assert_array_equal(found.per_query["ndcg@2"], [1, 0, 0])  # c is shorter than 2
        np.testing.assert_array_equal(found.per_query["p@2"], [1 / 2, 0, 0])
        assert found == {"ndcg@1": 2 / 3, "ndcg@2": 1 / 3, "p@2": 1 / 6}

    def test_average_precision_at_k_under_both_divisors(self) -> None:
        labels, scores = [1, 0, 1, 1], [4, 3, 2, 1]
        assert evaluate(labels, scores, [1] * 4, "map@2", "standard")["map@2"] == 1 / 3
        assert evaluate(labels, scores, [1] * 4, "map@2", "lightgbm")["map@2"] == 1 / 2
        assert evaluate(labels, scores, [1] * 4, "map", "lightgbm")["map"] == (1 + 2 / 3 + 3 / 4) / 3

    def test_precision_of_a_short_query(self) -> None:
        expected = {"letor": 0, "letor4": 2 / 5, "standard": 2 / 5, "xgboost": 2 / 3, "trec": 2 / 5}
        for convention, value in expected.items():
            assert evaluate([1, 0, 1], [3, 2, 1], [1] * 3, "p@5", convention)["p@5"] == value

    def test_the_highest_grade_of_err_is_the_largest_label_unless_stated(self) -> None:
        labels, scores, qid = [1, 0, 3], [2.0, 1.0, 0.0], [1, 1, 2]
        one, two = (2 - 1) / 2**3, (2**3 - 1) / 2**3
        assert evaluate(labels, scores, qid, "err")["err"] == (one + two) / 2
        assert evaluate(labels, scores, qid, "err", max_grade=4)["err"] == (one + two) / 2 / 2
        assert evaluate(labels, scores, qid, "err(max_grade=4)")["err(max_grade=4)"] == (one + two) / 4
        assert evaluate([0, 0], [1, 0], [1, 1], "err")["err"] == 0
        assert evaluate([1000, 0], [1, 0], [1, 1], "err", max_grade=1000)["err"] == 1.0


class TestDefinition:
    @pytest.mark.parametrize("convention", list(CONVENTIONS))
    @pytest.mark.parametrize("empty", [0, 1, "skip"])
    def test_every_metric_of_every_query(self, convention: str, empty: Any) -> None:
        for seed in range(3):
            labels, scores, qid = random_problem(seed, n=150, n_queries=40, relevant=0.3)
            found = evaluate(labels, scores, qid, EVERY, convention, empty=empty, max_grade=5)
            queries = by_query(labels, scores, qid)
            assert found.queries.tolist() == list(queries)
            sizes = [len(mine) for mine, _ in queries.values()]
            assert min(sizes) < 3 < max(sizes)
            for metric in found:
                expected = [
                    naive(metric, in_rank_order(*mine), found.convention, max_grade=5)
                    for mine in queries.values()
                ]
                np.testing.assert_allclose(found.per_query[metric], expected, rtol=1e-13, atol=1e-16)
                assert found[metric] == pytest.approx(np.nanmean(expected), rel=1e-13)

    def test_fractional_labels(self) -> None:
        labels, scores, qid = random_problem(5)
        labels = labels * 0.37
        found = evaluate(labels, scores, qid, EVERY, "standard", threshold=0.7)
        for metric, values in found.per_query.items():
            mine = by_query(labels, scores, qid).values()
            expected = [naive(metric, in_rank_order(*m), found.convention, labels.max()) for m in mine]
            np.testing.assert_allclose(values, expected, rtol=1e-13, atol=1e-16)

    @given(
        st.lists(
            st.tuples(st.integers(0, 3), st.integers(-3, 3), st.sampled_from("abc")), min_size=1, max_size=25
        ),
        st.sampled_from(sorted(CONVENTIONS)),
        st.randoms(use_true_random=False),
    )
    def test_laws(self, rows: list[tuple[int, int, str]], convention: str, random: Any) -> None:
        labels, scores, qid = zip(*rows, strict=True)
        call = {"metrics": EVERY, "convention": convention, "max_grade": 3}

        def per_query(labels: Any, scores: Any, qid: Any, **options: Any) -> dict[Any, list[float]]:
            found = evaluate(labels, scores, qid, **{**call, **options})
            table = np.array(list(found.per_query.values())).T
            return dict(zip(found.queries.tolist(), table.tolist(), strict=True))

        values = {t: per_query(labels, scores, qid, ties=t) for t in ("file", "average", "worst", "best")}
        for q in values["file"]:
            worst, average, best = (np.array(values[t][q]) for t in ("worst", "average", "best"))
            assert (worst <= average + 1e-12).all()
            assert (average <= best + 1e-12).all()
            assert (worst - 1e-12 <= values["file"][q]).all()
            assert (values["file"][q] <= best + 1e-12).all()
        # Scores matter by their order alone, and averaged ties not by the order of rows.
        assert per_query(labels, [math.exp(x) for x in scores], qid) == per_query(labels, scores, qid)
        shuffled = random.sample(rows, len(rows))
        again = per_query(*zip(*shuffled, strict=True), ties="average")
        for q, mine in values["average"].items():
            np.testing.assert_allclose(again[q], mine, rtol=1e-12, atol=1e-15)
        # The best order of all: every metric that is 1 at best is 1.
        ideal = evaluate(labels, labels, qid, "ndcg,meanndcg,map,mrr", convention, threshold=1, empty=1)
        assert list(ideal.values()) == pytest.approx([1, 1, 1, 1], rel=1e-12)

    def test_the_mean_does_not_depend_on_the_order_of_the_queries(self) -> None:
        labels, scores, qid = random_problem(2)
        order = np.argsort(qid, kind="stable")[::-1]
        assert evaluate(labels[order], scores[order], qid[order], EVERY) == evaluate(
            labels, scores, qid, EVERY
        )


class TestTies:
    @pytest.mark.parametrize("convention", ["letor", "lightgbm"])
    @pytest.mark.parametrize(
        ("labels", "scores"),
        [
            ((0, 2), (1, 1)),
            ((1, 0, 0, 3, 0), (1, 1, 1, 1, 1)),
            ((0, 1, 2, 0, 1, 0, 2), (3, 3, 2, 2, 2, 1, 1)),
            ((2, 0, 2, 1, 1, 0, 0), (5, 1, 1, 1, 1, 1, 1)),
            ((0, 0, 0, 0, 3, 1, 0), (2, 2, 2, 0, 0, 0, 0)),
            ((1, 1, 1, 2, 2, 0, 0), (9, 9, 9, 9, 9, 9, 9)),
            ((0, 0, 0), (1, 1, 2)),
        ],
    )
    def test_against_every_order(
        self, labels: tuple[int, ...], scores: tuple[int, ...], convention: str
    ) -> None:
        c = CONVENTIONS[convention]
        falling = sorted(set(scores), reverse=True)
        blocks = [[y for y, x in zip(labels, scores, strict=True) if x == score] for score in falling]
        orders = [
            [y for block in choice for y in block]
            for choice in itertools.product(*(itertools.permutations(block) for block in blocks))
        ]
        for metric in map(str, parse_metrics(EVERY)):
            values = [naive(metric, order, c, max_grade=3) for order in orders]
            expected = {"average": math.fsum(values) / len(values), "worst": min(values), "best": max(values)}
            for ties, value in expected.items():
                # beside another query with ties, so that blocks do not start at 0 only
                found = evaluate(
                    (1, 0, 1, *labels),
                    (2, 2, 2, *scores),
                    [7, 7, 7] + [8] * len(labels),
                    metric,
                    convention,
                    ties=ties,  # type: ignore[arg-type]
                    max_grade=3,
                )
                assert found.per_query[metric][1] == pytest.approx(value, rel=1e-13, abs=1e-15), (
                    metric,
                    ties,
                )

    @pytest.mark.parametrize("metric", ["err@5", "err@1", "err"])
    def test_err_of_many_ties_against_exact_symmetric_polynomials(self, metric: str) -> None:
        # Both ways to symmetric means: a value at a time for the small cutoffs, a document at a time for all.
        grades = [0] * 25 + [1] * 9 + [2] * 4 + [4] * 2
        labels = [3, *grades]
        scores = [2] + [1] * len(grades)
        stop = {r: Fraction(2**r - 1, 2**4) for r in range(5)}
        e = [Fraction(1)] + [Fraction(0)] * len(grades)  # elementary symmetric polynomials of 1 - stop
        for r in grades:
            for i in range(len(grades), 0, -1):
                e[i] += (1 - stop[r]) * e[i - 1]
        n = len(grades)
        going = [(1 - stop[3]) * e[i] / math.comb(n, i) for i in range(n + 1)]
        last = int(metric.partition("@")[2] or n + 1)
        exact = stop[3] + sum((going[i - 1] - going[i]) / (i + 1) for i in range(1, min(n, last - 1) + 1))
        found = evaluate(labels, scores, [0] * (n + 1), metric, ties="average", max_grade=4)
        assert found[metric] == pytest.approx(float(exact), rel=1e-14)

    def test_err_of_a_million_ties(self) -> None:
        # With replacement instead of without, the difference is of the order 10 / n.
        n = 10**6
        labels = np.zeros(n)
        labels[: n // 10] = 2
        found = evaluate(labels, np.zeros(n), np.zeros(n), "err@10,err", ties="average")
        mean = 1 - 0.1 * 3 / 4
        assert found["err@10"] == pytest.approx(
            sum((1 - mean) * mean ** (k - 1) / k for k in range(1, 11)), rel=2e-6
        )
        assert found["err"] == pytest.approx(
            sum((1 - mean) * mean ** (k - 1) / k for k in range(1, 900)), rel=2e-6
        )

    def test_err_that_would_take_too_long_says_so(self) -> None:
        labels = np.zeros(10**6)
        labels[5] = 1
        with pytest.raises(ValueError, match=r"ties='average' takes too long for err if 1000000 documents"):
            evaluate(labels, np.zeros(10**6), np.zeros(10**6), "err", ties="average")
        with_cutoff = evaluate(labels, np.zeros(10**6), np.zeros(10**6), "err@3", ties="average")
        assert with_cutoff["err@3"] == pytest.approx(1e-6 * 0.5 * (1 + 1 / 2 + 1 / 3), rel=1e-9)

    def test_zeros_of_both_signs_are_tied(self) -> None:
        assert evaluate([0, 1], [-0.0, 0.0], [1, 1], "mrr")["mrr"] == 0.5
        assert evaluate([0, 1], [-0.0, 0.0], [1, 1], "mrr", ties="average")["mrr"] == 0.75
        assert ranking([-0.0, 0.0, -0.0], None).rows.tolist() == [0, 1, 2]

    def test_equal_scores_of_different_queries_are_not_tied(self) -> None:
        found = evaluate([1, 0, 0, 1], [2, 1, 1, 2], [1, 1, 2, 2], "mrr,p@1", ties="average")
        assert found == {"mrr": 1.0, "p@1": 1.0}


class TestOthers:
    """The same numbers from other people's programs, each on its own convention."""

    labels, scores, qid = random_problem(11, n=2000, n_queries=60, relevant=0.5)

    def run_and_qrels(self) -> tuple[dict[str, dict[str, float]], dict[str, dict[str, int]]]:
        run: dict[str, dict[str, float]] = {}
        qrels: dict[str, dict[str, int]] = {}
        for i, (y, x, q) in enumerate(zip(self.labels, self.scores, self.qid, strict=True)):
            run.setdefault(str(q), {})[f"d{i}"] = float(x)
            qrels.setdefault(str(q), {})[f"d{i}"] = int(y)
        return run, qrels

    def test_pytrec_eval(self) -> None:
        pytrec_eval = pytest.importorskip("pytrec_eval", reason="trec_eval as a Python package")
        run, qrels = self.run_and_qrels()
        theirs = {
            "ndcg": "ndcg",
            **{f"ndcg@{k}": f"ndcg_cut_{k}" for k in (1, 3, 5, 10, 100)},
            **{f"p@{k}": f"P_{k}" for k in (1, 5, 10, 100)},
            **{f"recall@{k}": f"recall_{k}" for k in (5, 10)},
            **{f"hit@{k}": f"success_{k}" for k in (1, 5)},
            **{f"map@{k}": f"map_cut_{k}" for k in (5, 10)},
            "map": "map",
            "mrr": "recip_rank",
        }
        asked = {"ndcg", "map", "recip_rank"}
        asked |= {f"{name}.1,3,5,10,100" for name in ("ndcg_cut", "P", "recall", "success", "map_cut")}
        # trec_eval's gain is the label itself: gains of 2^r - 1 are labels of 2^r - 1.
        exponential = {q: {d: 2**r - 1 for d, r in mine.items()} for q, mine in qrels.items()}
        for convention, labels in (("trec", qrels), ("standard", exponential)):
            found = evaluate(self.labels, self.scores, self.qid, list(theirs), convention)
            result = pytrec_eval.RelevanceEvaluator(labels, asked).evaluate(run)
            for i, q in enumerate(found.queries):
                for ours, name in theirs.items():
                    assert found.per_query[ours][i] == pytest.approx(result[str(q)][name], rel=1e-12), ours

    def test_pytrec_eval_with_another_threshold(self) -> None:
        pytrec_eval = pytest.importorskip("pytrec_eval", reason="trec_eval as a Python package")
        run, qrels = self.run_and_qrels()
        result = pytrec_eval.RelevanceEvaluator(qrels, {"map", "P.5"}, relevance_level=3).evaluate(run)
        found = evaluate(self.labels, self.scores, self.qid, "map,p@5", "trec", threshold=3)
        for i, q in enumerate(found.queries):
            assert found.per_query["map"][i] == pytest.approx(result[str(q)]["map"], rel=1e-12)
            assert found.per_query["p@5"][i] == result[str(q)]["P_5"]

    def test_ir_measures(self) -> None:
        ir_measures = pytest.importorskip("ir_measures", reason="measures of several providers")
        run, qrels = self.run_and_qrels()
        pairs = {
            "ndcg(gain=linear)@10": "nDCG@10",
            "p@5": "P@5",
            "p(threshold=2)@5": "P(rel=2)@5",
            "map": "AP",
            "map(threshold=3)": "AP(rel=3)",
            "map@10": "AP@10",
            "mrr": "RR",
            "mrr@5": "RR@5",
            "recall@10": "R@10",
            "hit@3": "Success@3",
        }
        if shutil.which("perl"):  # ir_measures runs TREC's gdeval.pl, whose grades go to 4, for these two
            pairs |= {"err(max_grade=4)@10": "ERR@10", "ndcg@10": "nDCG(dcg='exp-log2')@10"}
        measures = {ours: ir_measures.parse_measure(text) for ours, text in pairs.items()}
        found = evaluate(self.labels, self.scores, self.qid, list(pairs), "standard")
        place = {str(q): i for i, q in enumerate(found.queries)}
        theirs: dict[tuple[str, str], float] = {}
        for one in ir_measures.iter_calc(list(measures.values()), qrels, run):
            theirs[str(one.measure), one.query_id] = one.value
        for ours, measure in measures.items():
            rounded = 6e-6 if ours in ("err(max_grade=4)@10", "ndcg@10") else 0  # gdeval prints five digits
            for q, i in place.items():
                value = theirs.get((str(measure), q), 0.0)
                assert found.per_query[ours][i] == pytest.approx(value, rel=1e-12, abs=rounded), (ours, q)

    @pytest.mark.slow  # it compiles
    @pytest.mark.filterwarnings("ignore:unsafe cast from uint64 to int64")
    def test_ranx(self) -> None:
        ranx = pytest.importorskip("ranx", reason="heavy: compiles its metrics with numba")
        run, qrels = self.run_and_qrels()
        kept = {q: {d: r for d, r in mine.items() if r} for q, mine in qrels.items()}
        kept = {q: mine for q, mine in kept.items() if mine}  # it takes no query without a relevant document
        pairs = {
            "ndcg(gain=linear)@10": "ndcg@10",
            "ndcg@10": "ndcg_burges@10",
            "p@5": "precision@5",
            "recall@5": "recall@5",
            "hit@2": "hit_rate@2",
            "map": "map",
            "map(threshold=2)": "map-l2",
            "mrr": "mrr",
            "mrr@3": "mrr@3",
            "rbp@0.8": "rbp.80",
        }
        theirs = ranx.evaluate(
            ranx.Qrels(kept), ranx.Run({q: run[q] for q in kept}), list(pairs.values()), return_mean=False
        )
        found = evaluate(self.labels, self.scores, self.qid, list(pairs), "standard")
        place = {str(q): i for i, q in enumerate(found.queries)}
        order = [place[q] for q in ranx.Qrels(kept).keys()]  # noqa: SIM118 - not a mapping
        for ours, name in pairs.items():
            np.testing.assert_allclose(found.per_query[ours][order], theirs[name], rtol=1e-12, err_msg=ours)

    @pytest.mark.parametrize("tied", [False, True])
    def test_scikit_learn(self, tied: bool) -> None:
        from sklearn.metrics import dcg_score, label_ranking_average_precision_score, ndcg_score

        scores = np.round(self.scores / 10) if tied else self.scores
        names = "ndcg,ndcg@1,ndcg@5,ndcg@50,dcg@5,map"
        found = evaluate(self.labels, scores, self.qid, names, "sklearn", ties="average")
        for i, (y, x) in enumerate(by_query(self.labels, scores, self.qid).values()):
            for k in (None, 1, 5, 50):
                name = "ndcg" if k is None else f"ndcg@{k}"
                assert found.per_query[name][i] == pytest.approx(ndcg_score([y], [x], k=k), rel=1e-12)
            assert found.per_query["dcg@5"][i] == pytest.approx(dcg_score([y], [x], k=5), rel=1e-12)
            if not tied and any(y):
                relevant = [[int(r >= 1) for r in y]]
                theirs = label_ranking_average_precision_score(relevant, [x])
                assert found.per_query["map"][i] == pytest.approx(theirs, rel=1e-12)

    def test_lightgbm(self) -> None:
        lightgbm = pytest.importorskip(
            "lightgbm", reason="its own NDCG and MAP, ties and empty queries included"
        )
        order = np.argsort(self.qid, kind="stable")
        X, y, qid = np.round(self.scores[order, None]), self.labels[order], self.qid[order]
        data = lightgbm.Dataset(X, y, group=np.unique(qid, return_counts=True)[1], free_raw_data=False)
        recorded: dict[str, Any] = {}
        model = lightgbm.train(
            {
                "objective": "lambdarank",
                "metric": ["ndcg", "map"],
                "eval_at": [1, 3, 10, 60],
                "num_leaves": 5,
                "verbose": -1,
                "num_threads": 1,
            },
            data,
            num_boost_round=2,
            valid_sets=[data],
            valid_names=["all"],
            callbacks=[lightgbm.record_evaluation(recorded)],
        )
        names = [f"{name}@{k}" for name in ("ndcg", "map") for k in (1, 3, 10, 60)]
        found = evaluate(y, model.predict(X), qid, names, "lightgbm")
        for name in names:
            assert found[name] == pytest.approx(recorded["all"][name][-1], rel=1e-12)


class TestExpectedGain:
    """The metric is the limit of the gain that is trained."""

    labels, scores, qid = random_problem(4, n=400, n_queries=12)

    @pytest.mark.parametrize(
        ("gain", "convention"),
        [
            ("ndcg", "letor"),
            ("ndcg@5", "letor"),
            ("ndcg(discount=log2)@5", "letor"),
            ("ndcg(discount=log2)", "standard"),
            ("ndcg(discount=log2,gain=linear)@3", "trec"),
            ("p@5", "letor"),
            ("p(threshold=3)@5", "letor"),
            ("rbp@0.8", "letor"),
            ("rbp@0", "standard"),
        ],
    )
    def test_small_sigma(self, gain: str, convention: str) -> None:
        # Scores are 1/8 apart, so that at this width the kernel's neighbours are exp(-78): 1e-34.
        soft = sinkprop.expected_gain(
            self.scores,
            self.labels,
            self.qid,
            gain=gain,
            relaxation=sinkprop.SmoothedIndicator(sigma=0.01),
            epsilon=0,
        )
        hard = evaluate(self.labels, self.scores, self.qid, gain, convention)
        np.testing.assert_array_equal(soft.queries, hard.queries)
        np.testing.assert_allclose(hard.per_query[gain], soft.per_query, rtol=1e-12, atol=1e-15)
        assert hard[gain] == pytest.approx(soft.value, rel=1e-12)

    def test_every_text_form_of_a_gain_is_a_metric(self) -> None:
        for gain in (
            sinkprop.NDCG(),
            sinkprop.NDCG(7, discount="log2", gain="linear"),
            sinkprop.Precision(3, threshold=1.5),
            sinkprop.RBP(0.25),
        ):
            assert str(parse_metric(str(gain))) == str(gain)


class TestConventions:
    def test_empty_queries(self) -> None:
        labels, scores, qid = [0, 0, 1, 0], [2, 1, 2, 1], ["none", "none", "some", "some"]
        names = "ndcg,meanndcg,map,mrr,recall@1,hit@1,p@1,dcg,err,rbp@0.5"
        for empty, worth, plain in ((0, 0, 0), (1, 1, 0), ("skip", math.nan, math.nan)):
            found = evaluate(labels, scores, qid, names, "standard", empty=empty)  # type: ignore[arg-type]
            for name, values in found.per_query.items():
                one_at_best = name not in ("p@1", "dcg", "err", "rbp@0.5")
                np.testing.assert_equal(values[0], float(worth if one_at_best else plain), err_msg=name)
                assert found[name] == (values[1] if empty == "skip" else (values[0] + values[1]) / 2)

    def test_a_query_may_be_empty_for_one_metric_only(self) -> None:
        found = evaluate([1, 0, 2], [2, 1, 1], [1, 1, 2], "ndcg,map", "standard", threshold=2, empty="skip")
        np.testing.assert_array_equal(found.per_query["ndcg"], [1, 1])
        np.testing.assert_array_equal(found.per_query["map"], [math.nan, 1])
        assert found.describe().endswith(
            " mean over 1 to 2 of 2 queries (0 to 1 without a relevant document)."
        )

    def test_no_query_left_is_an_error(self) -> None:
        with pytest.raises(ValueError, match=r"^p@5: no query has a relevant document, and empty='skip'"):
            evaluate([1, 1], [1, 2], [1, 2], "ndcg,p@5", empty="skip", threshold=2)

    def test_the_named_ones(self) -> None:
        # Two queries: labels 1 and 2 in rank order, and a single irrelevant document.
        call = ([1, 2, 0], [2, 1, 0], ["a", "a", "b"], "ndcg,ndcg@3,p@2,map@1")
        d = 1 / log2(3)
        letor, log2_, linear = (1 + 3) / (3 + 1), (1 + 3 * d) / (3 + d), (1 + 2 * d) / (2 + d)
        expected = {  # query a; b counts 0 or 1 in NDCG and MAP, always 0 in P
            "letor": (letor, 0, 1, 1 / 2, 0),
            "letor4": (letor, 0, 1, 1 / 2, 0),
            "mslr": (letor, 0, 1 / 2, 0, 0),
            "standard": (log2_, log2_, 1, 1 / 2, 0),
            "lightgbm": (log2_, log2_, 1, 1, 1),
            "xgboost": (log2_, log2_, 1, 1, 1),
            "sklearn": (linear, linear, 1, 1 / 2, 0),
            "trec": (linear, linear, 1, 1 / 2, 0),
        }
        assert list(expected) == list(CONVENTIONS)
        for convention, (ndcg, ndcg3, p2, map1, b) in expected.items():
            found = evaluate(*call, convention)
            np.testing.assert_allclose(found.per_query["ndcg"], [ndcg, b], rtol=1e-15)
            np.testing.assert_allclose(found.per_query["ndcg@3"], [ndcg3, b], rtol=1e-15)
            np.testing.assert_allclose(found.per_query["p@2"], [p2, 0], rtol=1e-15)
            np.testing.assert_allclose(found.per_query["map@1"], [map1, b], rtol=1e-15)
        assert {c.ties for c in CONVENTIONS.values()} == {"file", "average"}
        assert [c.name for c in CONVENTIONS.values() if c.ties == "average"] == ["sklearn"]

    def test_a_variant(self) -> None:
        mine = replace(CONVENTIONS["standard"], name="mine", gain="linear", threshold=2)
        found = evaluate([2, 1, 3], [1, 2, 3], [1] * 3, "ndcg,p@2", mine)
        assert found.convention == mine
        assert found["ndcg"] == pytest.approx(
            (3 + 1 / log2(3) + 2 / 2) / (3 + 2 / log2(3) + 1 / 2), rel=1e-15
        )
        assert found["p@2"] == 1 / 2
        assert found.definition().startswith("mine: gain r, discount 1/log2(rank + 1);")

    @pytest.mark.parametrize("convention", list(CONVENTIONS))
    def test_the_description_states_everything(self, convention: str) -> None:
        found = evaluate([1, 0], [1, 2], [1, 1], "ndcg@2,err", convention)
        text = found.definition()
        assert found.describe() == f"ndcg@2 {found['ndcg@2']:.4f}, err {found['err']:.4f}\n{text}"
        assert text.startswith(f"{convention}: gain ")
        assert text.endswith("; the highest grade of ERR is 1; mean over 1 query.")
        for word in (
            "discount",
            "fewer than k",
            "without a relevant document",
            "tied scores",
            "; labels >= ",
        ):
            assert word in text
        assert text.count(".") == 1  # one sentence
        assert CONVENTIONS[convention].describe().rstrip(".") in text or "but 0 in ERR" in text

    def test_the_description_tells_every_convention_apart(self) -> None:
        texts = {c.describe().partition(":")[2] for c in CONVENTIONS.values()}
        assert len(texts) == len(CONVENTIONS)

    def test_the_description_names_what_was_changed(self) -> None:
        found = evaluate([1, 0, 0], [1, 2, 3], [1, 1, 2], "p@1", ties="average", empty="skip", threshold=0.5)
        assert found.definition().startswith("standard, except for empty, ties and threshold: ")
        assert (
            "is left out; tied scores are averaged over all orders; labels >= 0.5 are relevant; "
            in found.describe()
        )
        assert found.describe().endswith("mean over 1 of 2 queries (1 without a relevant document).")
        assert "counts 1, but 0 in P;" in evaluate([1], [1], [1], "p@1,ndcg", "lightgbm").describe()
        same = evaluate([1, 0], [1, 2], [1, 1], ties="file", empty=0, threshold=1)
        assert same.convention == CONVENTIONS["standard"]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"empty": 2}, "empty must be 0, 1 or 'skip'; got 2."),
            ({"empty": True}, "empty must be 0, 1 or 'skip'; got True."),
            ({"empty": "drop"}, "empty must be 0, 1 or 'skip'; got 'drop'."),
            ({"ties": "random"}, "ties must be 'file' or 'average' or 'worst' or 'best'; got 'random'."),
            ({"threshold": math.inf}, "threshold must be a finite number; got inf."),
            ({"max_grade": math.nan}, "max_grade must be a finite number; got nan."),
            (
                {"convention": "letro"},
                "convention must be a Convention, or one of letor, letor4, mslr, standard, lightgbm, "
                "xgboost, sklearn and trec; got 'letro'.",
            ),
        ],
    )
    def test_options_that_are_wrong(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            evaluate([1, 0], [1, 2], [1, 1], **options)

    def test_a_highest_grade_below_a_label(self) -> None:
        with pytest.raises(
            ValueError, match=re.escape("max_grade must be the highest grade there is; got 2, but")
        ):
            evaluate([1, 3], [1, 2], [1, 1], "err", max_grade=2)

    def test_the_named_conventions_cannot_be_changed(self) -> None:
        with pytest.raises(TypeError):
            CONVENTIONS["letor"] = CONVENTIONS["trec"]  # type: ignore[index]


class TestShortLists:
    """Queries with fewer documents than the cutoff."""

    rng = np.random.default_rng(3)
    sizes = rng.integers(1, 15, 60)
    qid = np.repeat(np.arange(60), sizes)
    labels, scores = rng.integers(0, 4, len(qid)), rng.permutation(len(qid)).astype(float)

    def test_the_perfect_ranking_of_five_documents_is_perfect(self) -> None:
        qid, y = np.repeat(np.arange(200), 5), np.tile([0, 2, 1, 0, 1], 200)
        assert evaluate(y, y, qid, "ndcg@10")["ndcg@10"] == 1
        text = evaluate(y, y, qid, "ndcg@1-10,p@3,map", "letor").definition()
        assert text.endswith(
            "mean over 200 queries. Queries that count 0 because they have fewer than k documents: "
            "200 of 200 for k = 6 to 10."
        )

    def test_the_default_is_scikit_learns_ndcg_with_exponential_gain(self) -> None:
        metrics = pytest.importorskip("sklearn.metrics")
        found = evaluate(self.labels, self.scores, self.qid, "ndcg@10").per_query["ndcg@10"]
        for q in np.flatnonzero(self.sizes > 1):  # scikit-learn refuses a single document
            rows = self.qid == q
            theirs = metrics.ndcg_score([2.0 ** self.labels[rows] - 1], [self.scores[rows]], k=10)
            assert found[q] == pytest.approx(theirs, abs=1e-12)

    @pytest.mark.parametrize(
        ("convention", "options", "metrics"),
        [
            ("letor", {}, "p@5,ndcg@10"),
            ("mslr", {}, "ndcg@5,dcg@10"),
            ("letor", {"empty": 1}, "ndcg@5,ndcg@10"),
            ("letor", {"empty": "skip"}, "p@5,ndcg@10"),
        ],
    )
    def test_the_description_counts_those_with_0(self, convention: str, options: Any, metrics: str) -> None:
        found = evaluate(self.labels, self.scores, self.qid, metrics, convention, **options)
        n = []
        for k, name in zip((5, 10), metrics.split(","), strict=True):
            relevant = np.array([(self.labels[self.qid == q] > 0).any() for q in range(60)])
            counted = np.ones(60, bool) if not options else relevant
            n.append(int(((self.sizes < k) & counted).sum()))
            assert 0 < n[-1] < 60
            assert (found.per_query[name][(self.sizes < k) & counted] == 0).all()
        assert found.definition().endswith(f": {n[0]} of 60 for k = 5, {n[1]} for k = 10.")

    @pytest.mark.parametrize("convention", ["standard", "lightgbm", "xgboost", "sklearn", "trec"])
    def test_other_conventions_have_none(self, convention: str) -> None:
        found = evaluate(self.labels, self.scores, self.qid, "ndcg@10,p@10", convention)
        assert "count 0 because" not in found.describe()
        assert (found.per_query["ndcg@10"][self.sizes < 10] > 0).any()


class TestWeights:
    def test_a_weighted_mean(self) -> None:
        labels, scores, qid = [0, 1, 0, 1, 0], [1, 2, 2, 1, 3], ["b", "b", "a", "a", "c"]
        weighted = evaluate(labels, scores, qid, "mrr", query_weight=[1, 3, 4])
        assert weighted["mrr"] == (1 * 1 + 3 * 0.5 + 4 * 0) / 8
        assert weighted.describe().endswith("weighted mean over 3 queries (1 without a relevant document).")
        left_out = evaluate(labels, scores, qid, "mrr", query_weight=[1, 3, 4], empty="skip")
        assert left_out["mrr"] == (1 * 1 + 3 * 0.5) / 4

    def test_the_unit_of_weights_does_not_matter(self) -> None:
        labels, scores, qid = random_problem(1)
        n = len(np.unique(qid))
        plain = evaluate(labels, scores, qid, EVERY)
        for unit in (1, 1e-300, 1e308):
            assert evaluate(labels, scores, qid, EVERY, query_weight=np.full(n, unit)) == pytest.approx(plain)

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            ([1], "query_weight must have one value per query, (2,)"),
            ([1, -1], "query_weight must be finite and not below 0; query 1 has -1.0."),
            ([1, math.nan], "query_weight must be finite and not below 0; query 1 has nan."),
            ([0, 0], "query_weight must be above 0 for some query that counts in mrr; all are 0."),
            ("ab", "query_weight must be an array of real numbers"),
        ],
    )
    def test_wrong_weights(self, weight: Any, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            evaluate([1, 1], [1, 2], [1, 2], "mrr", query_weight=weight)


class TestNames:
    names = st.one_of(
        st.builds(
            "{}{}{}".format,
            st.sampled_from(["ndcg", "dcg"]),
            st.sampled_from(["", "(discount=log2)", "(discount=letor,gain=linear)", "(gain=exponential)"]),
            st.sampled_from(["", "@1", "@10", "@1000000"]),
        ),
        st.builds(
            "{}{}@{}".format,
            st.sampled_from(["p", "recall", "hit", "map", "mrr"]),
            st.sampled_from(["", "(threshold=2)", "(threshold=0.5)", "(threshold=-1)"]),
            st.integers(1, 10**9),
        ),
        st.builds("rbp@{!r}".format, st.floats(0.001, 0.999)),
        st.sampled_from(
            ["map", "mrr", "err", "err@3", "err(max_grade=4)@10", "meanndcg", "rbp(threshold=1)@0.5"]
        ),
    )

    @given(names)
    def test_a_name_is_that_of_its_metric(self, name: str) -> None:
        metric = parse_metric(name)
        assert str(metric) == name
        assert parse_metric(name.upper()) == metric
        assert hash(parse_metric(name.upper())) == hash(metric)
        assert pickle.loads(pickle.dumps(metric)) == metric
        assert copy.deepcopy(metric) == metric

    def test_other_spellings(self) -> None:
        assert parse_metric("Precision @ 5") == parse_metric("p@5")
        assert parse_metric("AP@3") == parse_metric("map@3")
        assert parse_metric("rr") == parse_metric("mrr")
        assert str(parse_metric("rbp")) == "rbp@0.8"
        assert str(parse_metric("rbp@.5")) == "rbp@0.5"
        assert parse_metric("ndcg") != parse_metric("dcg")
        assert parse_metric("ndcg@3") != parse_metric("ndcg")

    def test_lists_and_ranges(self) -> None:
        assert [str(m) for m in parse_metrics("ndcg@1-3, map,p(threshold=2)@5")] == [
            "ndcg@1",
            "ndcg@2",
            "ndcg@3",
            "map",
            "p(threshold=2)@5",
        ]
        assert [str(m) for m in parse_metrics("ndcg(discount=log2,gain=linear)@2-3")] == [
            "ndcg(discount=log2,gain=linear)@2",
            "ndcg(discount=log2,gain=linear)@3",
        ]
        assert [str(m) for m in parse_metrics(["p@2", parse_metric("map"), "p@1 - 3", "MAP"])] == [
            "p@2",
            "map",
            "p@1",
            "p@3",
        ]
        assert parse_metrics(parse_metric("mrr")) == (parse_metric("mrr"),)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("ndgc@10", "metric 'ndgc@10' is not known. Did you mean 'ndcg@10'? The forms are " + FORMS),
            ("precison@5", "metric 'precison@5' is not known. Did you mean 'precision@5'?"),
            ("", "metric '' is not known. The forms are"),
            ("ndcg@", "metric 'ndcg@' is not known."),
            ("p", "metric 'p': p needs a cutoff, such as p@5. The forms are"),
            ("recall", "metric 'recall': recall needs a cutoff, such as recall@5."),
            ("ndcg@0", "metric 'ndcg@0': ndcg: k must be at least 1"),
            ("ndcg@1.5", "metric 'ndcg@1.5': the cutoff after @ must be an integer; got '1.5'."),
            ("ndcg@1-3", "metric 'ndcg@1-3': a range of cutoffs is several metrics, for parse_metrics."),
            ("rbp@1", "metric 'rbp@1': RBP: p must be at least 0 and below 1; got 1.0."),
            ("rbp@x", "metric 'rbp@x': the persistence after @ must be a number; got 'x'."),
            ("meanndcg@5", "metric 'meanndcg@5': meanndcg takes no cutoff."),
            ("ndcg(threshold=2)", "'threshold' is not an option; it takes discount and gain."),
            ("ndcg(discount=log)", "ndcg: discount must be 'letor' or 'log2'; got 'log'."),
            ("map(threshold=x)", "threshold must be a number; got 'x'."),
            ("map(threshold=inf)", "map: threshold must be a finite number; got inf."),
        ],
    )
    def test_names_that_are_wrong(self, name: str, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            parse_metric(name)

    @pytest.mark.parametrize("text", ["ndcg@3-1", "ndcg@0-2", "p@1-20000"])
    def test_ranges_that_are_wrong(self, text: str) -> None:
        with pytest.raises(ValueError, match="a range of cutoffs rises from 1 or more"):
            parse_metrics(text)

    def test_lists_that_are_wrong(self) -> None:
        with pytest.raises(ValueError, match="metrics must name at least one metric"):
            parse_metrics([])
        with pytest.raises(TypeError, match=re.escape("metrics must be names such as 'ndcg@10'")):
            parse_metrics([10])  # type: ignore[list-item]
        with pytest.raises(ValueError, match="metric '' is not known"):
            parse_metrics("ndcg,")

    @pytest.mark.parametrize(
        ("build", "error"),
        [
            (lambda cls: cls("ndcg")(2.5), TypeError),
            (lambda cls: cls("ndcg")(True), TypeError),
            (lambda cls: cls("p@1")(), TypeError),
            (lambda cls: cls("p@1")(5, threshold="2"), TypeError),
            (lambda cls: cls("err")(max_grade=math.nan), ValueError),
        ],
    )
    def test_values_that_are_wrong(self, build: Any, error: type[Exception]) -> None:
        with pytest.raises(error):
            build(lambda name: type(parse_metric(name)))


class TestEvaluation:
    labels, scores, qid = random_problem(3)

    def test_it_is_a_plain_mapping(self) -> None:
        found = evaluate(self.labels, self.scores, self.qid, "ndcg@10,map")
        assert isinstance(found, dict)
        assert json.loads(json.dumps(found)) == dict(found)
        assert all(type(value) is float for value in found.values())
        assert list(found) == ["ndcg@10", "map"]
        assert repr(found) == repr(dict(found))

    def test_what_comes_with_it(self) -> None:
        found = evaluate(self.labels, self.scores, self.qid, ["p@5", "map"])
        assert found.n_queries == len(np.unique(self.qid))
        assert found.queries.tolist() == list(dict.fromkeys(self.qid.tolist()))
        assert found.convention == CONVENTIONS["standard"]
        assert found.metrics == (parse_metric("p@5"), parse_metric("map"))
        assert all(isinstance(metric, Metric) for metric in found.metrics)
        assert {name: values.shape for name, values in found.per_query.items()} == {
            "p@5": (found.n_queries,),
            "map": (found.n_queries,),
        }

    def test_the_default(self) -> None:
        assert list(evaluate(self.labels, self.scores, self.qid)) == ["ndcg@10"]

    def test_other_spellings_find_a_value(self) -> None:
        found = evaluate(self.labels, self.scores, self.qid, ["NDCG@10", "precision@5"])
        assert list(found) == ["ndcg@10", "p@5"]
        assert found["NDCG@10"] == found["ndcg@10"]
        assert found["Precision@5"] == found["p@5"]
        for missing in ("map", "nonsense", 3):
            with pytest.raises(KeyError, match="was not evaluated; there is ndcg@10 and p@5"):
                found[missing]  # type: ignore[index]
        assert found.get("map") is None

    def test_it_can_be_copied(self) -> None:
        found = evaluate(self.labels, self.scores, self.qid, "ndcg@10,err")
        for other in (pickle.loads(pickle.dumps(found)), copy.copy(found), copy.deepcopy(found)):
            assert other == found
            assert other.describe() == found.describe()
            np.testing.assert_array_equal(other.per_query["err"], found.per_query["err"])

    def test_values_of_two_metrics_are_two_arrays(self) -> None:
        found = evaluate([1, 0], [1, 2], [1, 1], "mrr,mrr@5,mrr@9,p@2")
        for one, other in itertools.combinations(found.per_query.values(), 2):
            assert not np.shares_memory(one, other)

    def test_the_caller_s_arrays_are_left_alone(self) -> None:
        before = self.labels.copy(), self.scores.copy(), self.qid.copy()
        for ties in ("file", "average", "worst"):
            evaluate(self.labels, self.scores, self.qid, EVERY, ties=ties)  # type: ignore[arg-type]
        for old, new in zip(before, (self.labels, self.scores, self.qid), strict=True):
            np.testing.assert_array_equal(old, new)

    def test_kinds_of_ids(self) -> None:
        expected = evaluate(self.labels, self.scores, self.qid)
        for ids in (
            self.qid.astype(str),
            self.qid.astype(float),
            [("q", q) for q in self.qid],
            [str(q) for q in self.qid],
            self.qid.astype(np.uint16),
        ):
            assert evaluate(self.labels, self.scores, ids) == expected

    def test_lists_and_other_types_of_numbers(self) -> None:
        expected = evaluate(self.labels, self.scores, self.qid, EVERY)
        assert evaluate(self.labels.astype(int).tolist(), self.scores.tolist(), self.qid, EVERY) == expected
        assert (
            evaluate(self.labels.astype(np.int8), self.scores.astype(np.float32), self.qid, EVERY) == expected
        )
        strided = np.stack([self.scores, self.scores], axis=1)[:, 0]
        assert evaluate(self.labels, strided, self.qid, EVERY) == expected

    @pytest.mark.parametrize(
        ("labels", "scores", "qid", "message"),
        [
            ([1, 0], [1, 2], None, "qid must hold the query of each row; got None."),
            ([1, 0], [1, math.nan], [1, 1], "scores must be finite; row 1 holds nan."),
            ([1, 0], [-math.inf, 1], [1, 1], "scores must be finite; row 0 holds -inf."),
            ([1, -1], [1, 2], [1, 1], "labels must be finite and not below 0; row 1 holds -1.0."),
            ([1, math.nan], [1, 2], [1, 1], "labels must be finite and not below 0; row 1 holds nan."),
            ([1], [1, 2], [1, 1], "labels must have one value per row of scores: 2 rows, but 1 labels."),
            ([1, 0], [1, 2], [1], "qid must have one id per row: 2 rows, but 1 ids."),
            (
                [[[1]], [[0]]],
                [1, 2],
                [1, 1],
                "labels must have the shape (2,), or (2, I) with one column per intent; got (2, 1, 1).",
            ),
            (
                [1, 0],
                [[1], [2]],
                [1, 1],
                "scores must be one number per document, of shape (N,); got (2, 1).",
            ),
            ([], [], [], "scores must hold at least one document; got none."),
            ([1, 0], ["a", "b"], [1, 1], "scores must be an array of real numbers"),
            ([1, 0], 3.0, [1, 1], "scores must be an array of real numbers"),
            ([1000, 0], [1, 2], [1, 1], "labels[0] = 1000.0: ndcg(discount=log2) cannot take it."),
            ([0.5, 961.5], [1, 2], [1, 1], "labels[1] = 961.5: ndcg(discount=log2) cannot take it."),
        ],
    )
    def test_input_that_is_wrong(self, labels: Any, scores: Any, qid: Any, message: str) -> None:
        with pytest.raises(ValueError, match=re.escape(message)):
            evaluate(labels, scores, qid)

    def test_cutoffs_beyond_every_number(self) -> None:
        k = 10**30
        names = [f"{name}@{k}" for name in ("ndcg", "map", "mrr", "err", "recall", "hit", "dcg")]
        for convention in ("standard", "lightgbm"):
            far = evaluate(self.labels, self.scores, self.qid, names, convention)
            whole = evaluate(self.labels, self.scores, self.qid, "ndcg,map,mrr,err,dcg", convention)
            for name, value in whole.items():
                assert far[f"{name}@{k}"] == value
        short = evaluate(self.labels, self.scores, self.qid, f"ndcg@{k},p@{k}", "letor")
        assert list(short.values()) == [0, 0]
        few = evaluate([1, 0, 1], [1, 2, 3], [1] * 3, f"p@{k}", "standard")
        assert few[f"p@{k}"] == 2 / 1e30
        assert evaluate([1, 0, 1], [1, 2, 3], [1] * 3, f"p@{k}", "xgboost")[f"p@{k}"] == 2 / 3

    def test_large_labels_where_they_make_sense(self) -> None:
        found = evaluate([1e6, 5, 0], [1, 2, 3], [1] * 3, "ndcg(gain=linear),map,rbp@0", "standard")
        assert found["ndcg(gain=linear)"] == pytest.approx((5 / log2(3) + 1e6 / 2) / (1e6 + 5 / log2(3)))
        assert found["map"] == (1 / 2 + 2 / 3) / 2
        with pytest.raises(
            ValueError, match=re.escape("labels must be finite and not above 2^53; row 1 holds")
        ):
            evaluate([1, 1e300], [1, 2], [1, 1], "rbp")


class TestSizes:
    """Every way through the arrays: one query, single documents, short, long and mixed ones."""

    @pytest.mark.parametrize(
        "sizes",
        [
            [100_000],
            [1] * 5000,
            [3, 1, 2] * 2000,
            [100] * 300,
            [50_000, *([2] * 20_000), 7000, 1],
            [1, 1, 40_000],
            list(range(1, 300)),
        ],
        ids=["one", "single", "short", "equal", "mixed", "late", "all"],
    )
    @pytest.mark.parametrize("mixed_up", [False, True])
    def test_against_loops(self, sizes: list[int], mixed_up: bool) -> None:
        rng = np.random.default_rng(len(sizes))
        n = sum(sizes)
        qid = np.repeat(rng.permutation(len(sizes)), sizes)
        if mixed_up:
            qid = rng.permutation(qid)
        labels = rng.choice(4, n, p=[0.7, 0.2, 0.07, 0.03])
        scores = rng.permutation(n).astype(float)
        found = evaluate(
            labels, scores, qid, "ndcg@10,ndcg@40,ndcg,p@3,p@50,map,mrr,err,err@50,meanndcg", "standard"
        )
        order = np.lexsort((-scores, qid))
        starts = np.searchsorted(qid[order], np.arange(len(sizes)))
        ends = np.append(starts[1:], n)
        place = {q: i for i, q in enumerate(found.queries.tolist())}
        chosen = (
            range(len(sizes))
            if len(sizes) < 500
            else [*range(0, len(sizes), 97), int(np.argmax(ends - starts))]
        )
        for q in chosen:
            y = labels[order[starts[q] : ends[q]]].astype(float)
            m = len(y)
            G, ideal, D = 2**y - 1, np.sort(2**y - 1)[::-1], 1 / np.log2(np.arange(2, m + 2))
            rel, ranks = y >= 1, np.arange(1, m + 1)
            R = G / 2 ** labels.max()
            going = np.concatenate([[1], np.cumprod(1 - R)[:-1]])
            with np.errstate(invalid="ignore"):
                curve = np.nan_to_num(np.cumsum(G * D) / np.cumsum(ideal * D))
            expected = {
                "ndcg@10": curve[min(10, m) - 1],
                "ndcg@40": curve[min(40, m) - 1],
                "ndcg": curve[-1],
                "p@3": rel[:3].sum() / 3,
                "p@50": rel[:50].sum() / 50,
                "map": (np.cumsum(rel) / ranks)[rel].mean() if rel.any() else 0,
                "mrr": 1 / (np.argmax(rel) + 1) if rel.any() else 0,
                "err": (R * going / ranks).sum(),
                "err@50": (R * going / ranks)[:50].sum(),
                "meanndcg": curve.mean(),
            }
            for name, value in expected.items():
                assert found.per_query[name][place[q]] == pytest.approx(value, rel=1e-11, abs=1e-300), (
                    name,
                    q,
                )

    @pytest.mark.parametrize("n_queries", [1, 10_000, 10**6])
    def test_a_million_documents(self, n_queries: int) -> None:
        n = 10**6
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 3, n)
        found = evaluate(
            labels, labels, np.repeat(np.arange(n_queries), n // n_queries), "ndcg@1-10,map,mrr,err"
        )
        some = labels.reshape(n_queries, -1).any(axis=1).mean()
        assert found["ndcg@1"] == pytest.approx(some, rel=1e-12)
        assert found["map"] == pytest.approx(some, rel=1e-12)
        assert found["mrr"] == pytest.approx(some, rel=1e-12)
        assert found["ndcg@10"] == pytest.approx(some, rel=1e-12)
        if n_queries == n:
            assert found["err"] == pytest.approx(((2.0**labels - 1) / 4).mean(), rel=1e-12)


class TestRanking:
    def test_rows_of_each_query(self) -> None:
        r = ranking([1, 5, 5, 7, 2, 5], ["b", "a", "a", "b", "b", "a"])
        assert r.queries.tolist() == ["b", "a"]
        assert [r[q].tolist() for q in range(len(r))] == [[3, 4, 0], [1, 2, 5]]
        assert r[-1].tolist() == [1, 2, 5]
        assert r.ranks.tolist() == [3, 1, 2, 1, 2, 3]
        with pytest.raises(IndexError, match="there are 2 queries; got 2"):
            r[2]

    def test_no_ids_make_one_query(self) -> None:
        assert ranking([1.0, 3.0, 2.0], None).rows.tolist() == [1, 2, 0]

    @given(
        st.lists(
            st.tuples(st.sampled_from([-1e308, -1.0, 0.0, 5e-324, 1.0, 1e308]), st.integers(0, 4)),
            min_size=1,
            max_size=60,
        )
    )
    def test_against_python_s_sort(self, rows: list[tuple[float, int]]) -> None:
        scores, qid = zip(*rows, strict=True)
        r = ranking(scores, qid)
        for q, mine in zip(r.queries.tolist(), (r[i] for i in range(len(r))), strict=True):
            assert mine.tolist() == sorted(
                (i for i in range(len(qid)) if qid[i] == q), key=lambda i: (-scores[i], i)
            )
        assert sorted(r.rows.tolist()) == list(range(len(rows)))

    @pytest.mark.parametrize("size", [1, 3, 15, 16, 17, 5000])
    def test_both_ways_to_sort(self, size: int) -> None:
        rng = np.random.default_rng(size)
        qid = rng.permutation(np.repeat(np.arange(5000 // size + 1), size))
        scores = rng.integers(0, 10, len(qid)).astype(float)
        r = ranking(scores, qid)
        expected = np.lexsort((np.arange(len(qid)), -scores, qid))
        by_id = np.argsort(r.queries)
        np.testing.assert_array_equal(np.concatenate([r[q] for q in by_id]), expected)

    def test_bad_scores(self) -> None:
        with pytest.raises(ValueError, match="scores must be finite; row 0 holds nan"):
            ranking([math.nan], None)


class TestPublished:
    """LETOR 3.0's Regression row on OHSUMED: data, folds, metric and mean together, to every digit."""

    @staticmethod
    def part(name: str) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        from sklearn.datasets import load_svmlight_file

        raw = lzma.decompress((DATA / "ohsumed" / f"{name}.txt.xz").read_bytes())
        X, y, qid = load_svmlight_file(BytesIO(raw), n_features=45, query_id=True)
        return X.toarray(), y, qid

    @pytest.mark.skipif(not (DATA / "ohsumed").is_dir(), reason="OHSUMED is not in the folder SINKPROP_DATA")
    def test_regression_on_ohsumed(self) -> None:
        parts = [self.part(f"S{i}") for i in range(1, 6)]
        names = "ndcg@3,ndcg@5,ndcg@10,map"
        folds = []
        for fold in range(5):
            rotated = [parts[(fold + i) % 5] for i in range(5)]
            X, y = np.concatenate([p[0] for p in rotated[:3]]), np.concatenate([p[1] for p in rotated[:3]])
            w = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0]
            X_test, y_test, qid_test = rotated[4]
            folds.append(evaluate(y_test, X_test @ w[:-1] + w[-1], qid_test, names, "letor"))
        assert sum(result.n_queries for result in folds) == 106
        means = {name: round(float(np.mean([result[name] for result in folds])), 4) for name in folds[0]}
        assert means == {"ndcg@3": 0.4426, "ndcg@5": 0.4278, "ndcg@10": 0.4110, "map": 0.4220}
