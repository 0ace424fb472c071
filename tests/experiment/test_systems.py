"""`compare_scores`: means, intervals, tests and queries against `evaluate`, scipy and arithmetic."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.stats

import sinkprop
from sinkprop.experiment.significance import bootstrap_intervals
from sinkprop.experiment.systems import ScoreComparison
from sinkprop.metrics import parse_metrics

METRICS = "ndcg@5,map,p@2"


def problem(n_queries=40, n=8, seed=0):
    """Labels, query ids, and scores of three systems that know more and more about the labels."""
    rng = np.random.default_rng(seed)
    y, qid = rng.integers(0, 3, n_queries * n), np.repeat(np.arange(100, 100 + n_queries), n)
    noise = {"production": 4.0, "new": 1.0, "other": 3.5}
    return y, qid, {name: y + rng.normal(0, own, len(y)) for name, own in noise.items()}


@pytest.fixture(scope="module")
def found():
    y, qid, scores = problem()
    return sinkprop.compare_scores(y, scores, qid, METRICS)


def apart(found, system, metric):
    return found.per_query[system][metric] - found.per_query[found.baseline][metric]


class TestValues:
    @pytest.mark.parametrize("convention", ["standard", "letor", "lightgbm"])
    def test_means_and_values_are_those_of_evaluate(self, convention):
        y, qid, scores = problem()
        rows = np.random.default_rng(1).permutation(len(y))  # the rows of a query need not be adjacent
        mixed = {name: x[rows] for name, x in scores.items()}
        options = {"empty": "skip", "ties": "average", "threshold": 2.0}
        found = sinkprop.compare_scores(y[rows], mixed, qid[rows], METRICS, convention, **options)
        assert found.systems == ("production", "new", "other")
        for name, x in mixed.items():
            expected = sinkprop.evaluate(y[rows], x, qid[rows], METRICS, convention, **options)
            assert found.means[name] == dict(expected)
            for metric, values in expected.per_query.items():
                np.testing.assert_array_equal(found.per_query[name][metric], values)
        assert found.definition() == expected.definition()

    def test_queries_and_sizes_give_the_same(self, found):
        y, qid, scores = problem()
        queries = sinkprop.Queries(np.zeros((len(y), 1)), y, qid)
        by_queries = sinkprop.compare_scores(queries, scores, metrics=METRICS)
        by_size = sinkprop.compare_scores(y, scores, metrics=parse_metrics(METRICS), group=[8] * 40)
        assert by_queries.record() == found.record()
        assert by_size.differences == found.differences
        assert by_size.evaluations["new"].queries.tolist() == list(range(40))

    def test_frames_give_the_same(self, found):
        pd = pytest.importorskip("pandas")
        y, qid, scores = problem()
        frame = pd.DataFrame({"y": y, "qid": qid, **scores})
        again = sinkprop.compare_scores(frame["y"], dict(frame[list(scores)].items()), frame["qid"], METRICS)
        assert again.record() == found.record()

    def test_wins_and_losses_are_counted_by_query(self, found):
        for system in found.others:
            for metric in found.metrics:
                d = apart(found, system, metric).round(12)
                own = found.difference(system, metric)
                counts = (np.sum(d > 0), np.sum(d == 0), np.sum(d < 0))
                assert (own.wins, own.ties, own.losses) == counts
                assert own.n_queries == 40 == sum(counts)
                assert own.difference == pytest.approx(d.mean(), abs=1e-12)

    def test_queries_won_and_lost_by_most(self, found):
        d = apart(found, "new", "ndcg@5")
        order = np.argsort(-d, kind="stable")
        wins, losses = found.largest_wins("new", n=3), found.largest_losses("new", "NDCG@5", n=100)
        assert [own.query for own in wins] == (100 + order[:3]).tolist()
        assert [own.difference for own in wins] == d[order[:3]].tolist()
        assert len(losses) == np.sum(d < -1e-12)
        assert [own.difference for own in losses] == sorted(own.difference for own in losses)
        assert all(own.system - own.baseline == own.difference for own in (*wins, *losses))
        assert found.largest_wins("new", n=0) == ()

    def test_a_system_that_is_the_baseline_again(self):
        y, qid, scores = problem()
        one = {"a": scores["new"], "b": 2 * scores["new"] + 1}
        own = sinkprop.compare_scores(y, one, qid).difference("b")
        assert (own.difference, own.interval, own.randomization, own.verdict) == (0, (0, 0), 1, 0)
        assert (own.wins, own.ties, own.losses) == (0, 40, 0)

    def test_a_single_query_with_one_document(self):
        found = sinkprop.compare_scores([1], {"a": [0.1], "b": [0.2]}, ["q"])
        own = found.difference("b")
        assert (own.n_queries, own.ties, own.difference) == (1, 1, 0)
        assert math.isnan(own.t_test)
        assert found.intervals["a"] == {"ndcg@10": (1, 1)}
        assert json.loads(found.to_json())["differences"][0]["t_test"] is None

    def test_queries_that_are_left_out_count_nowhere(self):
        y = [1, 0, 0, 0, 0, 1]
        scores = {"a": [2, 1, 2, 1, 2, 1], "b": [1, 2, 1, 2, 1, 2]}
        found = sinkprop.compare_scores(y, scores, group=[2, 2, 2], metrics="mrr", empty="skip")
        own = found.difference("b")
        assert (own.n_queries, own.wins, own.ties, own.losses) == (2, 1, 0, 1)
        assert [q.query for q in found.largest_wins("b")] == [2]
        assert [row["mrr"] for row in found.record(per_query=True)["per_query"]] == [
            {"a": 1.0, "b": 0.5},
            {"a": None, "b": None},
            {"a": 0.5, "b": 1.0},
        ]


class TestTests:
    def test_t_and_wilcoxon_against_scipy(self, found):
        for system, metric in itertools.product(found.others, found.metrics):
            ours, theirs = found.per_query[system][metric], found.per_query["production"][metric]
            own, d = found.difference(system, metric), (ours - theirs).round(12)
            assert own.t_test == pytest.approx(scipy.stats.ttest_rel(ours, theirs).pvalue, rel=1e-9)
            some = d[d != 0]
            if len(np.unique(np.abs(some))) == len(some):  # scipy's exact test is for data without ties
                expected = scipy.stats.wilcoxon(some, method="exact").pvalue
                assert own.wilcoxon == pytest.approx(expected, rel=1e-9)

    def test_randomization_against_scipy(self, found):
        n = 10_000
        for system in found.others:
            d = apart(found, system, "ndcg@5")
            result = scipy.stats.permutation_test(
                (d, np.zeros(len(d))),
                lambda x, y, axis: np.mean(x - y, axis=axis),
                permutation_type="samples",
                vectorized=True,
                n_resamples=n,
                rng=np.random.default_rng(1),
            )
            p = found.difference(system, "ndcg@5").randomization
            error = math.sqrt(2 * max(p, 1 / n) * (1 - p) / n)
            assert abs(p - result.pvalue) < 5 * error + 2 / n

    def test_randomization_of_few_queries_by_trying_all_signs(self):
        y, qid, scores = problem(n_queries=9, seed=3)
        found = sinkprop.compare_scores(y, scores, qid, "map")
        d = apart(found, "new", "map")
        signs = np.array(list(itertools.product([-1, 1], repeat=9)))
        expected = np.mean(np.abs(signs @ d) >= abs(d.sum()) - 1e-9)
        assert found.difference("new").randomization == expected

    def test_corrected_for_the_systems(self, found):
        for metric in found.metrics:
            first, second = sorted(
                (found.difference(system, metric) for system in found.others), key=lambda d: d.randomization
            )
            assert first.randomization_holm == min(1, 2 * first.randomization)
            assert second.randomization_holm == max(first.randomization_holm, second.randomization)
        alone = sinkprop.compare_scores(
            problem()[0], {k: problem()[2][k] for k in ("production", "new")}, problem()[1], METRICS
        )
        assert alone.difference("new").randomization_holm == found.difference("new").randomization
        assert found.difference("new").verdict == 1
        assert found.against("new").difference("production").verdict == -1

    def test_intervals_by_drawing_queries(self, found):
        rng, values = np.random.default_rng(7), found.per_query
        drawn = rng.integers(0, 40, (4000, 40))
        for system in found.systems:
            means = values[system]["map"][drawn].mean(axis=1)
            spread = 5 * means.std() * math.sqrt(2 * 0.025 * 0.975 / 4000) / scipy.stats.norm.pdf(1.96)
            np.testing.assert_allclose(
                found.intervals[system]["map"], np.quantile(means, [0.025, 0.975]), rtol=0, atol=spread
            )
        means = apart(found, "new", "map")[drawn].mean(axis=1)
        spread = 5 * means.std() * math.sqrt(2 * 0.025 * 0.975 / 4000) / scipy.stats.norm.pdf(1.96)
        interval = found.difference("new", "map").interval
        np.testing.assert_allclose(interval, np.quantile(means, [0.025, 0.975]), rtol=0, atol=spread)

    def test_another_baseline_turns_the_signs(self, found):
        other = found.against("new")
        ours, theirs = found.difference("new", "map"), other.difference("production", "map")
        assert other.others == ("production", "other")
        assert theirs.difference == -ours.difference
        assert (theirs.wins, theirs.losses) == (ours.losses, ours.wins)
        assert theirs.randomization == ours.randomization
        np.testing.assert_allclose(theirs.interval, [-ours.interval[1], -ours.interval[0]], atol=1e-12)
        y, qid, scores = problem()
        again = sinkprop.compare_scores(y, scores, qid, METRICS, baseline="new")
        assert again.record() == other.record()


class TestWeights:
    def test_whole_weights_count_as_copies_of_queries(self):
        y, qid, scores = problem(n_queries=12)
        weight = np.array([1, 2, 3] * 4)
        found = sinkprop.compare_scores(y, scores, qid, "map", query_weight=weight)
        values = {name: np.repeat(own["map"], weight) for name, own in found.per_query.items()}
        for name, own in values.items():
            assert found.means[name]["map"] == pytest.approx(own.mean(), abs=1e-14)
        assert found.difference("new").difference == pytest.approx(
            np.mean(values["new"] - values["production"]), abs=1e-14
        )

    def test_tests_use_weighted_differences(self):
        y, qid, scores = problem(n_queries=10)
        weight = np.linspace(0.5, 2, 10)
        own = sinkprop.compare_scores(y, scores, qid, "map", query_weight=weight).difference("new")
        plain = sinkprop.compare_scores(y, scores, qid, "map")
        d = weight * apart(plain, "new", "map")
        signs = np.array(list(itertools.product([-1, 1], repeat=10)))
        assert own.randomization == np.mean(np.abs(signs @ d) >= abs(d.sum()) - 1e-9)
        assert own.t_test == pytest.approx(scipy.stats.ttest_1samp(d, 0).pvalue, rel=1e-9)
        assert own.difference == pytest.approx(d.sum() / weight.sum(), abs=1e-14)

    def test_intervals_by_drawing_queries_with_their_weights(self):
        y, qid, scores = problem(n_queries=30)
        weight = np.random.default_rng(2).uniform(0.1, 3, 30)
        found = sinkprop.compare_scores(y, scores, qid, "map", query_weight=weight)
        drawn = np.random.default_rng(3).integers(0, 30, (4000, 30))
        w, v = weight[drawn], found.per_query["new"]["map"][drawn]
        means = (w * v).sum(axis=1) / w.sum(axis=1)
        spread = 5 * means.std() * math.sqrt(2 * 0.025 * 0.975 / 4000) / scipy.stats.norm.pdf(1.96)
        np.testing.assert_allclose(
            found.intervals["new"]["map"], np.quantile(means, [0.025, 0.975]), rtol=0, atol=spread
        )

    def test_equal_weights_change_nothing(self, found):
        y, qid, scores = problem()
        weighted = sinkprop.compare_scores(y, scores, qid, METRICS, query_weight=np.full(40, 7.0))
        for ours, theirs in zip(weighted.differences, found.differences, strict=True):
            np.testing.assert_allclose(ours.interval, theirs.interval, rtol=0, atol=1e-12)
            assert ours.randomization == theirs.randomization
            assert ours.difference == pytest.approx(theirs.difference, abs=1e-14)
        bounds = bootstrap_intervals([[0.0], [1.0], [0.5]], [0, 0, 1], weight=np.array([2.0, 2.0, 5.0]))
        assert bounds.tolist() == bootstrap_intervals([[0.0], [1.0], [0.5]], [0, 0, 1]).tolist()

    def test_queries_of_weight_zero_are_left_out(self):
        y, qid, scores = problem(n_queries=10)
        kept = qid < 106
        weight = np.where(np.arange(10) < 6, 1.0, 0.0)
        found = sinkprop.compare_scores(y, scores, qid, "map", query_weight=weight)
        alone = sinkprop.compare_scores(y[kept], {k: x[kept] for k, x in scores.items()}, qid[kept], "map")
        assert found.differences == alone.differences
        assert found.intervals == alone.intervals


class TestOutput:
    def test_the_table_has_the_numbers(self, found):
        heads, *rows = found.rows("map")
        assert [row[0] for row in (heads, *rows)] == ["map", "production", "new", "other"]
        own = found.difference("new", "map")
        low, high = own.interval
        assert rows[0][3:] == [""] * 4
        assert rows[1][1].rstrip("+- ") == f"{found.means['new']['map']:.4f}"
        assert rows[1][3:] == [
            f"{own.difference:+.4f}",
            f"{low:+.4f} to {high:+.4f}",
            f"{own.randomization_holm:.4f}" if own.randomization_holm >= 0.00005 else "< .0001",
            f"{own.wins}/{own.ties}/{own.losses}",
        ]

    def test_marks_follow_the_verdicts(self, found):
        for metric in found.metrics:
            for name, row in zip(found.systems, found.rows(metric)[1:], strict=True):
                verdict = 0 if name == found.baseline else found.difference(name, metric).verdict
                assert row[1][-1] == {1: "+", -1: "-", 0: " "}[verdict]
        marks = {row[1][-1] for metric in METRICS.split(",") for row in found.rows(metric, unicode=True)[1:]}
        assert "▲" in marks

    def test_text_has_one_table_per_metric(self, found):
        text = str(found)
        assert text.isascii()
        assert [line.split()[0] for line in text.splitlines() if "95 % interval" in line] == [
            "ndcg@5",
            "map",
            "p@2",
        ]
        assert found.definition() in text
        assert "Holm-corrected for 2 systems" in text
        assert text == repr(found)
        assert found.table("map") in text
        assert all(line == line.rstrip() for line in text.splitlines())

    def test_markdown(self):
        y, qid, scores = problem(n_queries=4)
        one = {"a|b": scores["new"], "c": scores["other"]}
        lines = sinkprop.compare_scores(y, one, qid, "map").to_markdown().splitlines()
        assert lines[0].startswith("| map | mean | 95 % interval |")
        assert lines[1] == "| --- |" + " ---: |" * 6
        assert lines[2].startswith("| a\\|b | ")
        assert {line.replace("\\|", "").count("|") for line in lines[:4]} == {8}

    def test_record_is_plain(self, found):
        record = found.record(per_query=True)
        assert json.loads(found.to_json(per_query=True)) == record
        assert "per_query" not in found.record()
        assert record["baseline"] == "production"
        assert [own["name"] for own in record["systems"]] == list(found.systems)
        assert record["systems"][1]["metrics"] == found.means["new"]
        assert record["per_query"][5] == {
            "query": 105,
            **{k: {s: found.per_query[s][k][5] for s in found.systems} for k in found.metrics},
        }
        (own,) = (d for d in record["differences"] if (d["system"], d["metric"]) == ("new", "map"))
        assert own["randomization"] == found.difference("new", "map").randomization
        assert [q["query"] for q in own["largest_wins"]] == [
            q.query for q in found.largest_wins("new", "map", 5)
        ]

    def test_the_result_cannot_be_changed(self, found):
        with pytest.raises(FrozenInstanceError):
            found.baseline = "new"
        with pytest.raises(TypeError):
            found.evaluations["new"] = found.evaluations["other"]

    def test_scipy_is_loaded_for_the_tests_only(self):
        code = (
            "import sys, sinkprop\n"
            "found = sinkprop.compare_scores([1, 0], {'a': [1, 2], 'b': [2, 1]}, [1, 1])\n"
            "found.means, found.intervals\n"
            "assert not {'scipy', 'sklearn', 'pandas', 'rich'} & set(sys.modules)\n"
            "found.differences\n"
            "assert 'scipy' in sys.modules\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)


class TestErrors:
    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"scores": {"a": [1, 2, 3, 4]}}, r"at least two systems to compare; got 'a'\."),
            ({"scores": {}}, "at least two systems to compare; got none"),
            ({"scores": [[1, 2, 3, 4]] * 2}, "scores must be a mapping .*; got list"),
            (
                {"scores": {"a": [1, 2, 3, 4], "b": [1, 2]}},
                r"scores\['b'\] must have one score per row: 4 rows, but 2",
            ),
            ({"scores": {"a": [1, 2, 3, 4], "b": [1, 2, np.nan, 4]}}, r"scores\['b'\]: .*row 2 .*nan"),
            ({"scores": {"a": [1, 2, 3, 4], "b": ["x"] * 4}}, r"scores\['b'\]: "),
            ({"scores": {"a": [1, 2, 3, 4], "b": np.ones((4, 2))}}, r"scores\['b'\]: .*\(4, 2\)"),
            ({"scores": {"a": [1, 2, 3, 4], "b": {"q": {"d": 1}}}}, r"scores\['b'\] .* got a dictionary"),
            ({"scores": {"a": [1, 2, 3, 4], 3: [1, 2, 3, 4]}}, "must be text that is not empty; got 3"),
            ({"scores": {"a": [1, 2, 3, 4], " ": [1, 2, 3, 4]}}, "must be text that is not empty; got ' '"),
            ({"baseline": "c"}, "baseline must be one of a and b; got 'c'"),
            ({"qid": [1, 1, 2]}, "qid must have one id per row: 4 rows, but 3 ids"),
            ({"qid": None}, "qid must hold the query of each row; got None"),
            ({"group": [2, 2]}, "do not pass group with qid"),
            ({"qid": None, "group": [2, 1]}, "group must sum to the number of rows, 4"),
            ({"labels": [1, 0, -1, 0]}, "not below 0; row 2"),
            ({"metrics": "ndcg@"}, "ndcg@"),
            ({"query_weight": [1, 2, 3]}, r"one value per query, \(2,\)"),
        ],
    )
    def test_one_line_that_names_the_argument(self, change, said):
        given = {
            "labels": [1, 0, 1, 0],
            "scores": {"a": [1, 2, 3, 4], "b": [4, 3, 2, 1]},
            "qid": [1, 1, 2, 2],
            **change,
        }
        with pytest.raises(ValueError, match=said) as raised:
            sinkprop.compare_scores(**given)
        assert "\n" not in str(raised.value)

    def test_queries_have_their_ids(self):
        queries = sinkprop.Queries([[1.0], [2.0]], [1, 0], [1, 1])
        scores = {"a": [1, 2], "b": [2, 1]}
        with pytest.raises(ValueError, match="do not pass group with Queries"):
            sinkprop.compare_scores(queries, scores, group=[2])
        with pytest.raises(ValueError, match="do not pass qid with Queries"):
            sinkprop.compare_scores(queries, scores, [1, 1])

    def test_names_that_were_not_compared(self, found):
        for name in ("production", "absent"):
            with pytest.raises(KeyError, match="there is new and other"):
                found.difference(name)
        with pytest.raises(KeyError, match="'mrr' was not evaluated"):
            found.largest_wins("new", "mrr")
        with pytest.raises(ValueError, match="baseline must be one of production, new and other"):
            found.against("absent")
        assert isinstance(found.against("other"), ScoreComparison)
