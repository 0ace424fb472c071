"""The experiment: folds found on disk, means and tests against oracles, the same for any number of jobs."""

from __future__ import annotations

import csv
import functools
import importlib.util
import io
import itertools
import json
import lzma
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from fold_folders import NEW, OLD, PACKERS, letor_text, write_data_set, write_fold
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from places import DATA

import sinkprop
from sinkprop.baselines import FeatureRanker
from sinkprop.experiment import (
    METHODS,
    Comparison,
    FoldFiles,
    MethodError,
    compare,
    data_set_name,
    find_data_sets,
    parse_methods,
    published_rows,
)
from sinkprop.experiment.figure import plot
from sinkprop.experiment.significance import (
    bootstrap_intervals,
    holm,
    randomization_test,
    t_test,
    wilcoxon_test,
)

CHEAP = "regression,feature:1,feature:3"


def queries(first, n_queries, *, seed=0, n_documents=12, n_features=4):
    from sinkprop.data.letor import load_letor

    text = letor_text(first, n_queries, seed=seed, n_documents=n_documents, n_features=n_features)
    return load_letor(io.StringIO(text))


def some_folds(n=2, size=6):
    return [
        sinkprop.Fold(
            f"Fold{i + 1}", queries(1, 12), queries(100, size), queries(200 + 20 * i, size + i, seed=i)
        )
        for i in range(n)
    ]


class TestFolders:
    @pytest.mark.parametrize("packed", PACKERS)
    @pytest.mark.parametrize("names", [NEW, OLD, ("train", "valid", "test")], ids="-".join)
    def test_every_file_name_and_compression(self, tmp_path, names, packed):
        folder = write_data_set(tmp_path / "TD2003" / "Data", names=names, packed=packed)
        (found,) = find_data_sets(folder)
        assert found.name == "TD2003"
        assert [fold.name for fold in found.folds] == ["Fold1", "Fold2"]
        parts = found.folds[0].read()
        assert [len(set(part.qid.tolist())) for part in (parts.train, parts.vali, parts.test)] == [12, 6, 6]
        assert set(parts.test.qid.tolist()) == set(range(19, 25))

    def test_the_gov_sets_of_one_folder(self, tmp_path):
        for year in (2003, 2004):
            for kind in ("hp", "np", "td"):
                write_data_set(tmp_path / "Gov" / "QueryLevelNorm" / f"{year}_{kind}_dataset", n_folds=5)
        found = find_data_sets(tmp_path / "Gov")
        assert {data.name for data in found} == {f"{k}{y}" for k in ("HP", "NP", "TD") for y in (2003, 2004)}
        assert all([fold.name for fold in data.folds] == [f"Fold{i}" for i in range(1, 6)] for data in found)
        assert all(published_rows(data.name) for data in found)
        assert find_data_sets(tmp_path / "Gov" / "QueryLevelNorm") == found

    def test_of_several_versions_the_normalized_one_is_taken(self, tmp_path):
        root = tmp_path / "OHSUMED" / "OHSUMED"
        write_data_set(root / "Feature-min", names=OLD)
        write_data_set(root / "Feature_null", names=OLD)
        write_data_set(root / "QueryLevelNorm")
        (found,) = find_data_sets(tmp_path)
        assert (found.name, found.path) == ("OHSUMED", root / "QueryLevelNorm")
        assert [path.name for path in found.left_out] == ["Feature-min", "Feature_null"]
        (other,) = find_data_sets(root / "Feature-min")
        assert (other.name, other.path, other.left_out) == ("OHSUMED", root / "Feature-min", ())
        both = find_data_sets(root / "Feature-min", root / "QueryLevelNorm")
        assert [data.name for data in both] == ["OHSUMED/Feature-min", "OHSUMED/QueryLevelNorm"]
        assert published_rows("OHSUMED/Feature-min") == published_rows("OHSUMED")

    def test_one_fold_folder_and_several(self, tmp_path):
        folder = write_data_set(tmp_path / "MQ2008", n_folds=3)
        (found,) = find_data_sets(folder / "Fold2")
        assert (found.name, [fold.name for fold in found.folds]) == ("MQ2008", ["Fold2"])
        (found,) = find_data_sets(folder / "Fold3", folder / "Fold1", folder / "Fold1")
        assert [fold.name for fold in found.folds] == ["Fold1", "Fold3"]
        (found,) = find_data_sets(folder, folder)
        assert len(found.folds) == 3

    def test_more_than_nine_folds_in_the_order_of_their_numbers(self, tmp_path):
        texts = [letor_text(i, 2) for i in (1, 3, 5)]
        for number in (10, 9, 1):
            write_fold(tmp_path / "x" / f"fold_{number}", texts)
        (found,) = find_data_sets(tmp_path / "x")
        assert [fold.name for fold in found.folds] == ["Fold1", "Fold9", "Fold10"]

    def test_a_division_without_folds_or_validation(self, tmp_path):
        texts = [letor_text(1, 8), letor_text(20, 3)]
        write_fold(tmp_path / "istella-letor" / "full", texts, names=("train", "test"))
        (found,) = find_data_sets(tmp_path / "istella-letor")
        assert (found.name, [fold.name for fold in found.folds]) == ("istella-letor", ["all"])
        assert found.folds[0].vali is None
        assert found.folds[0].read().vali is None
        result = compare({found.name: found.folds}, "regression", n_jobs=1)
        assert result.n_queries("istella-letor") == 3

    def test_the_two_sets_of_yahoo(self, tmp_path):
        folder, texts = tmp_path / "ltrc_yahoo", [letor_text(i, 3) for i in (1, 4, 7)]
        for prefix in ("set1.", "set2."):
            write_fold(folder, texts, names=("train", "valid", "test"), prefix=prefix)
        found = find_data_sets(folder)
        assert [data.name for data in found] == ["ltrc_yahoo/set1", "ltrc_yahoo/set2"]
        assert found[1].folds[0].vali == folder / "set2.valid.txt"

    @pytest.mark.parametrize(
        ("path", "name"),
        [
            ("ohsumed", "OHSUMED"),
            ("a/Ohsumed/querylevelnorm", "OHSUMED"),
            ("Gov/QueryLevelNorm/2004_td_dataset", "TD2004"),
            ("Gov/Feature_min/2003_np_dataset", "NP2003"),
            ("TREC/TD2004/Data", "TD2004"),
            ("mslr-web10k", "MSLR-WEB10K"),
            ("MQ2007-list", "MQ2007-list"),
            ("NP2004-part", "NP2004-part"),
            ("ohsumed/runs/mine", "mine"),
        ],
    )
    def test_names(self, path, name):
        assert data_set_name(path) == name

    @pytest.mark.parametrize("missing", ["train", "vali", "test"])
    def test_a_missing_file_is_named(self, tmp_path, missing):
        folder = write_data_set(tmp_path / "NP2004")
        (folder / "Fold2" / f"{missing}.txt").unlink()
        with pytest.raises(FileNotFoundError) as error:
            find_data_sets(folder)
        assert str(folder / "Fold2") in str(error.value)
        assert f"{missing}.txt is missing" in str(error.value)

    def test_a_missing_file_has_the_name_that_its_neighbors_suggest(self, tmp_path):
        folder = write_data_set(tmp_path / "TD2004", names=OLD)
        (folder / "Fold1" / "validationset.txt").unlink()
        with pytest.raises(
            FileNotFoundError, match=r"validationset.txt is missing; there is only trainingset"
        ):
            find_data_sets(folder)

    def test_what_is_no_data_set(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="no data set is here"):
            find_data_sets(tmp_path)
        with pytest.raises(FileNotFoundError, match="no such folder"):
            find_data_sets(tmp_path / "gone")
        (tmp_path / "test.txt").write_text("0 qid:1 1:1\n")
        with pytest.raises(FileNotFoundError, match=r"train.txt is missing; there is only test.txt"):
            find_data_sets(tmp_path)
        (tmp_path / "Fold1").mkdir()
        with pytest.raises(FileNotFoundError, match="there is no data file"):
            find_data_sets(tmp_path)

    def test_two_files_for_one_part(self, tmp_path):
        folder = write_data_set(tmp_path / "x")
        (folder / "Fold1" / "trainingset.txt").write_text("0 qid:1 1:1\n")
        with pytest.raises(ValueError, match=r"both train.txt and trainingset.txt"):
            find_data_sets(folder)
        (folder / "Fold1" / "trainingset.txt").unlink()
        (folder / "Fold1" / "train.txt.gz").write_bytes(b"not read")  # the plain file is
        assert find_data_sets(folder)[0].folds[0].train.name == "train.txt"

    def test_chosen_folds_and_a_given_name(self, tmp_path):
        folder = write_data_set(tmp_path / "x", n_folds=3)
        (found,) = find_data_sets(folder, folds=[3, 1], name="mine")
        assert (found.name, [fold.name for fold in found.folds]) == ("mine", ["Fold3", "Fold1"])
        with pytest.raises(ValueError, match=r"x has no Fold4; there is only Fold1, Fold2 and Fold3"):
            find_data_sets(folder, folds=[1, 4])
        write_data_set(tmp_path / "y")
        with pytest.raises(ValueError, match="there are 2: x and y"):
            find_data_sets(tmp_path, name="mine")

    def test_files_of_different_width(self, tmp_path):
        texts = [letor_text(1, 4), letor_text(5, 2), letor_text(7, 2, n_features=3)]
        write_fold(tmp_path / "x" / "Fold1", texts)
        (found,) = find_data_sets(tmp_path / "x")
        with pytest.raises(
            ValueError, match=r"test.txt has 3 features, but train.txt beside it has 4"
        ) as error:
            found.folds[0].read()
        assert "4 or more" in str(error.value)
        with pytest.raises(ValueError, match=r"test.txt has 3 features"):
            compare({"x": found.folds}, "regression", n_jobs=1)
        (found,) = find_data_sets(tmp_path / "x", n_features=5)
        parts = found.folds[0].read()
        assert parts.test.X.shape[1] == parts.train.X.shape[1] == 5
        assert not parts.test.X[:, 3:].any()


def letor_ndcg(labels, k):
    """NDCG@k of labels in rank order, as LETOR's script computes it."""

    def dcg(ordered):
        return sum((2**r - 1) / (1 if i <= 2 else math.log2(i)) for i, r in enumerate(ordered[:k], 1))

    best = dcg(sorted(labels, reverse=True))
    return dcg(labels) / best if best and len(labels) >= k else 0.0


def average_precision(labels):
    hits = [i for i, r in enumerate(labels, 1) if r >= 1]
    return sum(n / i for n, i in enumerate(hits, 1)) / len(hits) if hits else 0.0


class Recording(FeatureRanker):
    """A ranker that notes the convention with which it is fitted."""

    seen: list = []  # noqa: RUF012

    def _fit(self, data, validation):
        self.seen.append(self.convention)
        super()._fit(data, validation)


class TestConvention:
    @pytest.mark.parametrize(
        ("names", "given", "expected"),
        [
            (["OHSUMED"], None, "letor"),
            (["NP2004", "ohsumed"], None, "letor"),
            (["data"], None, "standard"),
            (["OHSUMED", "data"], None, "standard"),
            (["OHSUMED"], "standard", "standard"),
            (["data"], "letor4", "letor4"),
        ],
    )
    def test_the_default_is_letors_where_results_are_published(self, monkeypatch, names, given, expected):
        monkeypatch.setattr(Recording, "seen", [])
        monkeypatch.setitem(METHODS, "recording", replace(METHODS["best-feature"], make=Recording))
        found = compare(
            dict.fromkeys(names, some_folds(1)), "recording", metrics="map", convention=given, n_jobs=1
        )
        assert found.convention == expected
        assert found.describe(names[0]).startswith(f"{expected}: gain ")
        assert Recording.seen == [expected] * len(names)  # a method selects by the comparison's convention

    def test_ones_own_estimators_keep_their_convention(self, monkeypatch):
        monkeypatch.setattr(Recording, "seen", [])
        own = {"mine": Recording(convention="trec"), "theirs": "best-feature"}
        compare(some_folds(1), own, metrics="map", convention="letor", n_jobs=1)
        assert Recording.seen == ["trec"]

    def test_the_table_says_how_many_queries_count_0(self):
        folds = [
            sinkprop.Fold(f"Fold{i}", queries(1, 12), queries(100, 5), queries(200, i, n_documents=n, seed=i))
            for i, n in ((2, 4), (3, 12))
        ]
        found = compare(folds, "feature:1", metrics="ndcg@3,ndcg@10,p@5", convention="letor", n_jobs=1)
        sizes = np.concatenate([fold.test.groups.sizes for fold in folds])
        n5, n10 = (int((sizes < k).sum()) for k in (5, 10))
        assert 0 < n5 <= n10 < 5
        counts = f"{n5} of 5 for k = 5" + (" to 10" if n5 == n10 else f", {n10} for k = 10")
        assert found.describe("data").endswith(
            "mean over the queries of each fold, 5 in all, then over the 2 folds. Queries that count 0 "
            f"because they have fewer than k documents: {counts}."
        )
        standard = compare(folds, "feature:1", metrics="ndcg@10", n_jobs=1)
        assert standard.describe("data").endswith("then over the 2 folds.")


class TestProtocol:
    def test_values_and_means_by_arithmetic(self):
        folds = some_folds(3)
        found = compare(folds, "feature:1", metrics="ndcg@3,p@2,map", convention="letor", n_jobs=1)
        assert found.folds("data") == ("Fold1", "Fold2", "Fold3")
        expected = {"ndcg@3": [], "p@2": [], "map": []}
        for fold in folds:
            test, own = fold.test, {"ndcg@3": [], "p@2": [], "map": []}
            for q in dict.fromkeys(test.qid.tolist()):
                rows = np.flatnonzero(test.qid == q)
                labels = test.y[rows[np.argsort(-test.X[rows, 0], kind="stable")]].tolist()
                own["ndcg@3"].append(letor_ndcg(labels, 3))
                own["p@2"].append(sum(r >= 1 for r in labels[:2]) / 2)
                own["map"].append(average_precision(labels))
            result = found.result("data", "feature:1", fold.name)
            assert result.queries == tuple(dict.fromkeys(test.qid.tolist()))
            for metric, values in own.items():
                np.testing.assert_allclose(result.per_query[metric], values, rtol=0, atol=1e-15)
                expected[metric].append(np.mean(values))
        # folds of 6, 7 and 8 queries: the mean of their means, which is not that of all queries
        for metric, means in expected.items():
            assert found.mean("data", "feature:1", metric) == pytest.approx(np.mean(means), abs=1e-15)
        sizes = [6, 7, 8]
        assert found.n_queries("data") == sum(sizes)
        pooled = np.average(expected["map"], weights=sizes)
        assert abs(found.mean("data", "feature:1", "map") - pooled) > 1e-6

    def test_each_method_sees_train_and_validation_and_ranks_the_test(self):
        (fold,) = some_folds(1)
        found = compare([fold], "regression", metrics="ndcg@5", n_jobs=1)
        ranker = sinkprop.baselines.RegressionRanker().fit(fold.train.X, fold.train.y, qid=fold.train.qid)
        scores = ranker.predict(fold.test.X)
        expected = sinkprop.evaluate(fold.test.y, scores, fold.test.qid, "ndcg@5")
        assert found.mean("data", "regression", "ndcg@5") == expected["ndcg@5"]
        seen = {}

        class Watcher:
            def fit(self, X, y, *, qid, eval_set, eval_qid):
                seen.update(X=X, y=y, qid=qid, eval_set=eval_set, eval_qid=eval_qid)

            def rank(self, X, *, qid):
                return np.arange(1, len(X) + 1)

            def __deepcopy__(self, memo):
                return self

        compare([fold], {"watcher": Watcher()}, n_jobs=1)
        assert np.array_equal(seen["X"], fold.train.X)
        assert np.array_equal(seen["y"], fold.train.y)
        assert np.array_equal(seen["qid"], fold.train.qid)
        assert np.array_equal(seen["eval_set"][0][0], fold.vali.X)
        assert np.array_equal(seen["eval_set"][0][1], fold.vali.y)
        assert np.array_equal(seen["eval_qid"][0], fold.vali.qid)

    def test_estimators_of_other_interfaces(self):
        from sklearn.linear_model import LinearRegression

        folds = some_folds()
        sizes = []

        class ByGroup:
            def fit(self, X, y, group, eval_set, eval_group):
                sizes.append((list(group), list(eval_group[0])))
                self.w = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), y, rcond=None)[0][:-1]
                return self

            def predict(self, X):
                return X @ self.w

        methods = {"linear": LinearRegression(), "group": ByGroup(), "ours": "regression"}
        found = compare(folds, methods, metrics="ndcg@10,map", n_jobs=1)
        assert sizes == [([12] * 12, [12] * 6)] * 2
        for metric in found.metrics:
            means = {found.mean("data", method, metric) for method in methods}
            assert max(means) - min(means) < 1e-12
        assert found.against == "linear"
        assert all(
            t.verdict == 0 and t.t_test == t.wilcoxon == t.randomization == 1 for t in found.tests("data")
        )

    def test_rows_of_a_query_may_stand_anywhere(self):
        (fold,) = some_folds(1)
        rng = np.random.default_rng(3)
        order = rng.permutation(len(fold.test))
        mixed = sinkprop.Fold(
            "mixed", fold.train.take(rng.permutation(len(fold.train))), fold.vali, fold.test
        )
        a = compare([fold], "regression", metrics="map", n_jobs=1)
        b = compare([mixed], "regression", metrics="map", n_jobs=1)
        assert b.mean("data", "regression", "map") == pytest.approx(
            a.mean("data", "regression", "map"), abs=1e-12
        )
        shuffled = sinkprop.Fold("Fold1", fold.train, fold.vali, fold.test.take(order))
        c = compare([shuffled], "regression", metrics="map", n_jobs=1)
        assert c.mean("data", "regression", "map") == pytest.approx(
            a.mean("data", "regression", "map"), abs=1e-12
        )

    def test_files_and_folds_give_the_same(self, tmp_path):
        (data,) = find_data_sets(write_data_set(tmp_path / "x", packed=".gz"))
        parts = [fold.read() for fold in data.folds]
        folds = [
            sinkprop.Fold(f.name, p.train, p.vali, p.test) for f, p in zip(data.folds, parts, strict=True)
        ]
        a, b = compare({"x": data.folds}, CHEAP, n_jobs=1), compare({"x": folds}, CHEAP, n_jobs=1)
        assert a.means("x") == b.means("x")

    def test_any_number_of_processes_gives_the_same(self, tmp_path):
        quick = sinkprop.SinkPropRanker(
            penalty=[1e-3, 1e-2], annealing=sinkprop.Annealing(4, 1), max_iter=3, selection="validation"
        )
        folds = {"a": some_folds(2), "b": find_data_sets(write_data_set(tmp_path / "b"))[0].folds}
        methods = {"quick": quick, "regression": "regression", "best": "best-feature"}
        told = []
        one, two = (compare(folds, methods, n_jobs=n, notify=lambda *step: told.append(step)) for n in (1, 2))
        for a, b in zip(one.results, two.results, strict=True):
            assert (a.dataset, a.method, a.fold, a.queries) == (b.dataset, b.method, b.fold, b.queries)
            assert a.means == b.means
            for metric in one.metrics:
                assert a.per_query[metric].tobytes() == b.per_query[metric].tobytes()
        for name in folds:
            assert one.tests(name) == two.tests(name)
            assert one.intervals(name) == two.intervals(name)
            assert one.describe(name) == two.describe(name)
        assert one.result("a", "quick", "Fold1").summary["validated_on"] == "6 validation queries"
        assert [step[:2] for step in told if step[2].startswith("12 of 12")] == [(12, 12)] * 2

    def test_errors_name_the_method_and_the_fold(self):
        class Picky:
            def fit(self, X, y):
                if len(X) > 12 * 12:
                    raise RuntimeError("too\nmuch")

            def predict(self, X):
                return X[:, 0]

        folds = some_folds(1)
        folds.append(sinkprop.Fold("Fold7", queries(1, 13), folds[0].vali, folds[0].test))
        for n_jobs in (1, 2):
            with pytest.raises(MethodError, match=r"^picky failed on x, Fold7: RuntimeError: too much$"):
                compare({"x": folds}, {"picky": Picky()}, n_jobs=n_jobs)

    def test_warnings_are_kept_with_the_result(self):
        import warnings

        class Worried:
            def fit(self, X, y):
                warnings.warn("few\nrows", UserWarning, stacklevel=1)
                warnings.warn("few rows", UserWarning, stacklevel=1)

            def predict(self, X):
                return X[:, 0]

        found = compare(some_folds(1), {"worried": Worried()}, n_jobs=1)
        assert found.result("data", "worried", "Fold1").warnings == ("few rows",)

    def test_an_interrupted_fit_interrupts_the_comparison(self, monkeypatch):
        from sinkprop.linear import recipe as training

        def interrupted(*arguments):
            raise KeyboardInterrupt

        run = training._run_stage
        calls = itertools.count()
        monkeypatch.setattr(training, "_run_stage", lambda *a: interrupted() if next(calls) == 2 else run(*a))
        with pytest.raises(KeyboardInterrupt):
            compare(some_folds(1), "sinkprop-best", n_jobs=1)

    def test_empty_queries_left_out(self):
        (fold,) = some_folds(1)
        y = fold.test.y.copy()
        empty = fold.test.qid == fold.test.qid[0]
        y[empty] = 0
        test = sinkprop.Queries(fold.test.X, y, fold.test.qid)
        folds = [sinkprop.Fold("Fold1", fold.train, fold.vali, test)]
        rules = sinkprop.evaluate(test.y, test.X[:, 0], test.qid, "map", "trec", empty="skip")
        found = compare(folds, "feature:1,feature:2", metrics="map", convention=rules.convention, n_jobs=1)
        assert found.mean("data", "feature:1", "map") == rules["map"]
        (t,) = found.tests("data")
        assert t.n_queries == 5
        assert np.isnan(found.result("data", "feature:1", "Fold1").per_query["map"][0])
        again = Comparison.from_json(found.to_json())
        assert again.tests("data") == found.tests("data")
        assert again.to_json() == found.to_json()
        assert ",1,map,\n" not in found.per_query_csv()
        assert f",{test.qid[0]},map,\n" in found.per_query_csv()

    def test_err_has_one_highest_grade(self):
        (fold,) = some_folds(1)
        test = sinkprop.Queries(fold.test.X, np.minimum(fold.test.y, 1), fold.test.qid)
        found = compare(
            [sinkprop.Fold("f", fold.train, fold.vali, test)], "feature:1", metrics="err@5", n_jobs=1
        )
        expected = sinkprop.evaluate(test.y, test.X[:, 0], test.qid, "err@5", max_grade=2)
        assert found.mean("data", "feature:1", "err@5") == expected["err@5"]
        assert "the highest grade of ERR is 2" in found.describe("data")

    @pytest.mark.parametrize(
        ("change", "error", "said"),
        [
            ({"folds": []}, ValueError, "has no fold"),
            ({"folds": {}}, ValueError, "at least one data set"),
            ({"folds": ["Fold1"]}, TypeError, "must hold Fold or FoldFiles; got 'str'"),
            ({"methods": "regresion"}, ValueError, "Did you mean 'regression'"),
            ({"methods": ""}, ValueError, "is not known"),
            ({"methods": []}, ValueError, "at least one method"),
            ({"methods": [3]}, TypeError, "must be names"),
            ({"methods": {"a": 3}}, TypeError, r"methods\['a'\] must be an estimator"),
            ({"methods": {"a": FeatureRanker}}, TypeError, "must be an estimator"),
            ({"metrics": "ndgc@3"}, ValueError, "not known"),
            ({"convention": "trek"}, ValueError, "convention must be"),
            ({"against": "sinkprop"}, ValueError, "against must be one of the methods compared, regression"),
            ({"n_jobs": 0}, ValueError, "n_jobs must be"),
            ({"n_jobs": 1.5}, ValueError, "n_jobs must be"),
            ({"methods": "feature:5"}, MethodError, "feature must be a number from 1 to 4"),
            ({"methods": "feature:bm25"}, MethodError, "have no feature names"),
        ],
    )
    def test_wrong_arguments(self, change, error, said):
        arguments = {"folds": some_folds(1), "methods": "regression", "n_jobs": 1} | change
        with pytest.raises(error, match=said):
            compare(arguments.pop("folds"), arguments.pop("methods"), **arguments)

    def test_folds_of_one_name(self):
        with pytest.raises(ValueError, match="must have different names; got Fold1 and Fold1"):
            compare(some_folds(1) * 2, "regression")

    def test_what_was_not_compared_is_a_key_error(self):
        found = compare(some_folds(1), "regression", metrics="map", n_jobs=1)
        for ask in (
            lambda: found.mean("data", "regression", "ndcg@1"),
            lambda: found.mean("data", "sinkprop", "map"),
            lambda: found.mean("OHSUMED", "regression", "map"),
            lambda: found.result("data", "regression", "Fold2"),
            lambda: found.tests("OHSUMED"),
        ):
            with pytest.raises(KeyError, match="was not compared"):
                ask()
        assert found.tests("data") == ()


class TestMethods:
    def test_every_name_makes_an_estimator(self):
        from sklearn.base import clone

        for name, method in METHODS.items():
            estimator = clone(method.make())
            assert callable(estimator.fit), name
            assert method.description

    def test_the_settings_behind_the_names(self):
        make = {name: method.make() for name, method in METHODS.items()}
        assert make["sinkprop"].get_params() == sinkprop.SinkPropRanker().get_params()
        relaxed = {name: make[f"sinkprop-{name}"].relaxation for name in ("laplace", "probit", "beta")}
        assert relaxed == {"laplace": "laplace", "probit": "probit", "beta": "beta"}
        assert make["sinkprop-logit-logistic"].relaxation == "logit-logistic"
        assert make["sinkprop-resampled"].resample == 20
        best = make["sinkprop-best"].selection
        assert (best.method, best.rule) == ("validation", "best")

    def test_names_once_and_in_order(self):
        assert list(parse_methods(["sinkprop, regression", "feature:-2", "sinkprop"])) == [
            "sinkprop",
            "regression",
            "feature:-2",
        ]

    def test_all_are_meant_by_a_name_of_their_own(self):
        here = [n for n, m in METHODS.items() if m.needs is None or importlib.util.find_spec(m.needs)]
        neural = [n for n in here if METHODS[n].needs == "torch"]
        here = [n for n in here if n not in neural]
        assert list(parse_methods("all")) == here
        baselines = list(parse_methods("baselines,sinkprop"))
        assert baselines == [
            *(n for n in here if not n.startswith(("sinkprop", "boosted", "auto"))),
            "sinkprop",
        ]
        trees = [n for n in here if METHODS[n].needs in ("lightgbm", "xgboost", "catboost")]
        if trees:
            assert list(parse_methods("trees")) == trees
            assert {"boosted", "boosted-default", "lambdamart"} <= set(trees)
        if neural:
            assert list(parse_methods("neural")) == neural
            assert neural[0] == "sinkprop-neural"
        assert list(parse_methods("feature:1,all"))[:2] == ["feature:1", next(iter(METHODS))]

    def test_one_way_to_choose_for_all_methods(self):
        fold = sinkprop.Fold("f", queries(1, 6), queries(7, 3), queries(10, 2))
        mine = sinkprop.SinkPropRanker(penalty=1e-2, annealing=sinkprop.Annealing(2, 1), max_iter=2)
        methods = {"mine": mine, "regression": "regression"}
        by = {}
        for selection in (None, "validation", "cross-validation", sinkprop.Selection("validation")):
            found = compare([fold], methods, metrics="ndcg@5", n_jobs=1, selection=selection)
            by[selection] = found.result("data", "mine", "f").summary["validated_on"]
        assert by[None] == by["cross-validation"] == "9-fold cross-validation over 9 queries"
        assert by["validation"] == by[sinkprop.Selection("validation")] == "3 validation queries"
        assert mine.selection == "auto"
        with pytest.raises(ValueError, match="method must be"):
            compare([fold], methods, metrics="ndcg@5", n_jobs=1, selection="luck")

    @pytest.mark.parametrize("name", [n for n in METHODS if n.startswith("sinkprop")])
    def test_the_sinkprop_methods_run(self, name):
        fold = sinkprop.Fold("f", queries(1, 3), queries(4, 2), queries(6, 2))
        quick = {"penalty": 1e-2, "annealing": sinkprop.Annealing(2, 1), "max_iter": 2}
        if METHODS[name].needs == "torch":
            pytest.importorskip("torch")
            quick = {"max_epochs": 2}
        ranker = METHODS[name].make().set_params(**quick)
        found = compare([fold], {name: ranker}, metrics="ndcg@5", n_jobs=1)
        assert 0 < found.mean("data", name, "ndcg@5") <= 1


class TestFeatureRanker:
    X, y, qid = [[1.0, 9.0], [2.0, 8.0], [3.0, 7.0], [4.0, 6.0]], [0, 0, 1, 2], [1, 1, 1, 1]

    def test_numbers_signs_and_names(self):
        def rank(feature, **more):
            return FeatureRanker(feature, **more).fit(self.X, self.y, qid=self.qid).rank(self.X, qid=self.qid)

        assert rank(1).tolist() == rank(-2).tolist() == [4, 3, 2, 1]
        assert rank(2).tolist() == rank(-1).tolist() == [1, 2, 3, 4]
        assert rank("BM25", feature_names=["idf", "bm25"]).tolist() == [1, 2, 3, 4]

    def test_the_best_is_chosen_in_training(self):
        ranker = FeatureRanker(metric="map").fit(self.X, self.y, qid=self.qid)
        assert ranker.feature_ == 1
        ranker = FeatureRanker(metric="map").fit(self.X, self.y[::-1], qid=self.qid)
        assert ranker.feature_ == -1

    @pytest.mark.parametrize("feature", [0, 3, -3, 1.5, True])
    def test_wrong_numbers(self, feature):
        with pytest.raises(ValueError, match="feature must be a number from 1 to 2"):
            FeatureRanker(feature).fit(self.X, self.y, qid=self.qid)

    def test_wrong_names(self):
        with pytest.raises(ValueError, match="'tf' matches none of the features, which are idf, bm25"):
            FeatureRanker("tf", feature_names=["idf", "bm25"]).fit(self.X, self.y, qid=self.qid)
        with pytest.raises(ValueError, match="'a' matches several"):
            FeatureRanker("a", feature_names=["a", "a"]).fit(self.X, self.y, qid=self.qid)

    def test_a_saved_one_ranks_the_same(self, tmp_path):
        ranker = FeatureRanker(-2).fit(self.X, self.y, qid=self.qid)
        ranker.save(tmp_path / "model.json")
        again = FeatureRanker.load(tmp_path / "model.json")
        assert again.rank(self.X, qid=self.qid).tolist() == [4, 3, 2, 1]
        assert again.get_params() == ranker.get_params()

    def test_feature_names_of_the_data_are_used(self):
        data = sinkprop.Queries(self.X, self.y, self.qid, feature_names=("idf", "bm25"))
        found = compare(
            [sinkprop.Fold("f", data, data, data)], "feature:bm25,feature:2", metrics="map", n_jobs=1
        )
        assert found.result("data", "feature:bm25", "f").summary == {"feature": 2}


def differences(n, seed=0, ties=False):
    d = np.random.default_rng(seed).normal(0.1, 1, n)
    return np.round(d, 1) if ties else d


class TestSignificance:
    @pytest.mark.parametrize("n", [2, 3, 10, 106, 2000])
    @pytest.mark.parametrize("ties", [False, True])
    def test_t_test_against_scipy(self, n, ties):
        rng = np.random.default_rng(n)
        a, b = rng.random(n), rng.random(n)
        if ties:
            a, b = a.round(1), b.round(1)
        assert t_test(a - b) == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue, rel=1e-9)

    @pytest.mark.parametrize("n", [1, 2, 7, 25, 50])
    def test_exact_wilcoxon_against_scipy(self, n):
        d = differences(n, n)
        expected = scipy.stats.wilcoxon(d, method="exact").pvalue
        assert wilcoxon_test(d) == pytest.approx(expected, rel=1e-12)
        assert wilcoxon_test(np.append(d, [0.0, np.nan])) == pytest.approx(expected, rel=1e-12)

    @pytest.mark.parametrize("n", [60, 500])
    @pytest.mark.parametrize("ties", [False, True])
    def test_wilcoxon_of_many_against_scipy(self, n, ties):
        d = differences(n, n, ties)
        d = d[d != 0]
        assert len(d) > 50
        expected = scipy.stats.wilcoxon(d, method="approx", correction=False).pvalue
        assert wilcoxon_test(d) == pytest.approx(expected, rel=1e-9)

    @given(hnp.arrays(np.int64, st.integers(1, 9), elements=st.integers(-4, 4)))
    def test_wilcoxon_with_ties_by_trying_all_signs(self, whole):
        d = whole[whole != 0].astype(float)
        if not len(d):
            assert wilcoxon_test(whole / 10) == 1
            return
        ranks = scipy.stats.rankdata(np.abs(d))
        center = ranks.sum() / 2
        signs = np.array(list(itertools.product([0, 1], repeat=len(d))))
        away = np.abs(signs @ ranks - center)
        expected = np.mean(away >= abs(ranks[d > 0].sum() - center) - 1e-9)
        assert wilcoxon_test(whole / 10) == pytest.approx(expected, abs=1e-12)

    @settings(max_examples=30)
    @given(
        hnp.arrays(np.float64, st.integers(1, 8), elements=st.sampled_from([-3.0, -1.0, 0.0, 1.0, 2.0, 5.0]))
    )
    def test_exact_randomization_against_scipy(self, d):
        (p,) = randomization_test(d / 10)  # scipy has no tolerance, and gets the whole numbers
        if not d.any():
            assert p == 1
            return
        d = d[d != 0]
        signs = np.array(list(itertools.product([-1, 1], repeat=len(d))))
        expected = np.mean(np.abs(signs @ d) >= abs(d.sum()) - 1e-9)
        assert p == pytest.approx(expected, abs=1e-12)
        if len(d) > 1:  # scipy doubles the smaller tail, which here is the same up to 1

            def mean(x, y, axis):
                return np.mean(x - y, axis=axis)

            result = scipy.stats.permutation_test(
                (d, np.zeros(len(d))), mean, permutation_type="samples", vectorized=True, n_resamples=np.inf
            )
            assert p == pytest.approx(min(1.0, result.pvalue), abs=1e-9)

    def test_twelve_are_tried_in_every_way_and_thirteen_by_chance(self):
        d = differences(12, 1)
        padded = np.concatenate([d, np.zeros(100), [np.nan]])
        assert randomization_test(padded)[0] == randomization_test(d)[0]
        assert randomization_test(d)[0] * 2**12 == pytest.approx(
            round(randomization_test(d)[0] * 2**12), abs=1e-9
        )
        many = differences(13, 1)
        p = randomization_test(many)[0]
        assert p * 10_001 == pytest.approx(round(p * 10_001), abs=1e-6)
        signs = 1 - 2 * ((np.arange(2**13)[:, None] >> np.arange(13)) & 1)
        exact = np.mean(np.abs(signs @ many) >= abs(many.sum()) - 1e-9)
        assert abs(p - exact) < 5 * math.sqrt(exact * (1 - exact) / 10_000)

    def test_random_signs_agree_with_the_t_test_where_it_holds(self):
        D = np.random.default_rng(0).normal(0.05, 1, size=(400, 6))
        p = randomization_test(D)
        expected = np.array([t_test(D[:, j]) for j in range(6)])
        assert np.all(np.abs(p - expected) < 5 * np.sqrt(expected * (1 - expected) / 10_000) + 0.01)

    def test_columns_do_not_depend_on_each_other(self):
        D = np.random.default_rng(1).normal(size=(30, 4))
        together = randomization_test(D)
        assert together.tolist() == [float(randomization_test(D[:, j])[0]) for j in range(4)]
        assert together.tolist() == randomization_test(D).tolist()
        V, folds = np.random.default_rng(2).random((30, 4)), np.repeat([0, 1, 2], 10)
        intervals = bootstrap_intervals(V, folds)
        alone = np.concatenate([bootstrap_intervals(V[:, [j]], folds) for j in range(4)])
        np.testing.assert_allclose(intervals, alone, rtol=0, atol=1e-14)

    def test_no_difference_a_constant_one_and_none_at_all(self):
        zero, constant = np.zeros(20), np.full(20, 0.1)
        assert (t_test(zero), wilcoxon_test(zero), randomization_test(zero)[0]) == (1, 1, 1)
        assert t_test(constant) == 0
        assert wilcoxon_test(constant) == pytest.approx(2 / 2**20)
        assert randomization_test(constant)[0] == pytest.approx(1 / 10_001)
        assert math.isnan(t_test([0.5]))
        assert wilcoxon_test([0.5]) == randomization_test([0.5])[0] == 1
        assert math.isnan(t_test([np.nan]))
        assert math.isnan(wilcoxon_test([np.nan]))
        assert randomization_test([np.nan])[0] == 1

    def test_rounding_is_no_difference(self):
        a = np.array([0.1 + 0.2, 0.5, 0.7])
        d = a - np.array([0.3, 0.4, 0.6])
        assert wilcoxon_test(d) == wilcoxon_test([0.1, 0.1]) == 0.5

    @given(hnp.arrays(np.float64, st.integers(1, 8), elements=st.floats(0, 1)))
    def test_holm_by_its_definition(self, p):
        corrected, m = holm(p), len(p)
        order = np.argsort(p, kind="stable")
        for place, i in enumerate(order):
            expected = max((m - before) * p[order[before]] for before in range(place + 1))
            assert corrected[i] == min(1.0, expected)
        # rejecting by corrected p is Holm's step-down procedure
        rejected, going = np.zeros(m, bool), True
        for place, i in enumerate(order):
            going = going and (m - place) * p[i] < 0.05
            rejected[i] = going
        assert np.array_equal(corrected < 0.05, rejected)

    def test_holm_leaves_out_what_is_no_test(self):
        assert holm([0.02, np.nan, 0.03])[[0, 2]].tolist() == [0.04, 0.04]
        assert np.isnan(holm([0.02, np.nan])[1])

    def test_bootstrap_of_one_fold_against_scipy(self):
        values = np.random.default_rng(0).beta(2, 3, 80)
        ((low, high),) = bootstrap_intervals(values[:, None], np.zeros(80, int))
        result = scipy.stats.bootstrap(
            (values,), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(1)
        )
        # a quantile at 2.5 % of 10,000 normal draws has this standard error, and there are two of them
        error = (
            result.standard_error
            * math.sqrt(0.025 * 0.975 / 10_000)
            / scipy.stats.norm.pdf(1.96)
            * math.sqrt(2)
        )
        assert abs(low - result.confidence_interval.low) < 5 * error
        assert abs(high - result.confidence_interval.high) < 5 * error

    def test_bootstrap_draws_within_folds(self):
        # each fold has equal values: nothing can vary, however different the folds are
        values = np.array([[0.0, 1.0]] * 5 + [[1.0, 0.5]] * 3)
        intervals = bootstrap_intervals(values, [0] * 5 + [1] * 3)
        np.testing.assert_allclose(intervals, [[0.5, 0.5], [0.75, 0.75]], rtol=0, atol=1e-15)

    def test_bootstrap_by_its_exact_distribution(self):
        # two queries a fold, of 0 and 1: the mean of a fold is 0, 1/2, 1 with probability 1/4, 1/2, 1/4
        values, folds = np.array([[0.0], [1.0]] * 2), [0, 0, 1, 1]
        assert bootstrap_intervals(values, folds, level=0.80).tolist() == [[0.25, 0.75]]
        assert bootstrap_intervals(values, folds, level=0.90).tolist() == [[0.0, 1.0]]

    def test_bootstrap_leaves_nan_out(self):
        values = np.array([[0.2], [0.4], [np.nan], [0.9]])
        ((low, high),) = bootstrap_intervals(values, [0, 0, 0, 1])
        assert (round(low, 12), round(high, 12)) == (0.55, 0.65)


class TestComparison:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        return compare({"x": some_folds(3, size=8)}, CHEAP, metrics="ndcg@1-3,map", n_jobs=1)

    def test_tests_are_over_the_queries_of_all_folds(self, found):
        values = {
            m: np.concatenate([found.result("x", m, f).per_query["map"] for f in found.folds("x")])
            for m in found.methods
        }
        tests = {t.method: t for t in found.tests("x") if t.metric == "map"}
        assert set(tests) == {"feature:1", "feature:3"}
        ps = []
        for method, t in tests.items():
            assert (t.against, t.n_queries) == ("regression", 8 + 9 + 10)
            a, b = values[method], values["regression"]
            assert t.t_test == pytest.approx(scipy.stats.ttest_rel(a, b).pvalue, rel=1e-9)
            assert t.wilcoxon == wilcoxon_test(a - b)
            assert t.randomization == randomization_test(a - b)[0]
            expected = found.mean("x", method, "map") - found.mean("x", "regression", "map")
            assert t.difference == pytest.approx(expected, abs=1e-15)
            assert t.interval[0] <= t.difference <= t.interval[1]
            ps.append(t.randomization)
        assert [t.randomization_holm for t in tests.values()] == holm(ps).tolist()
        worse = tests["feature:3"]
        assert (worse.verdict, worse.difference < 0) == (-1, True)

    def test_intervals_hold_the_means(self, found):
        for method, by_metric in found.intervals("x").items():
            for metric, (low, high) in by_metric.items():
                assert low <= found.mean("x", method, metric) <= high

    def test_a_query_tested_twice_counts_once(self):
        (fold,) = some_folds(1)
        twice = [fold, sinkprop.Fold("again", fold.train, fold.vali, fold.test)]
        once = compare([fold], "regression,feature:1", metrics="map", n_jobs=1).tests("data")[0]
        found = compare(twice, "regression,feature:1", metrics="map", n_jobs=1).tests("data")[0]
        assert (found.n_queries, found.t_test, found.randomization) == (
            once.n_queries,
            once.t_test,
            once.randomization,
        )

    def test_another_reference(self):
        found = compare(some_folds(1), CHEAP, metrics="map", against="feature:3", n_jobs=1)
        assert {(t.method, t.against) for t in found.tests("data")} == {
            ("regression", "feature:3"),
            ("feature:1", "feature:3"),
        }

    def test_json_comes_back_whole(self, found):
        text = found.to_json()
        again = Comparison.from_json(text)
        assert again.to_json() == text
        assert again.means("x") == found.means("x")
        assert again.tests("x") == found.tests("x")
        record = json.loads(text)
        assert (record["format"], record["version"]) == ("sinkprop-comparison", 2)
        (data,) = record["datasets"]
        assert data["n_queries"] == 27
        by_method = {m["method"]: m for m in data["methods"]}
        for method in found.methods:
            assert by_method[method]["means"] == found.means("x")[method]
            for fold in by_method[method]["folds"]:
                r = found.result("x", method, fold["fold"])
                assert fold["queries"] == list(r.queries)
                assert fold["per_query"]["map"] == r.per_query["map"].tolist()
                assert fold["fit_seconds"] == r.fit_seconds > 0

    def test_json_of_ids_that_are_text(self):
        (fold,) = some_folds(1)
        ids = np.array(["q [1] \n{}", *[f"q{i}" for i in range(5)]])[np.repeat(np.arange(6), 12)]
        test = sinkprop.Queries(fold.test.X, fold.test.y, ids)
        found = compare([sinkprop.Fold("f", fold.train, fold.vali, test)], "regression", n_jobs=1)
        again = Comparison.from_json(found.to_json())
        assert again.result("data", "regression", "f").queries == tuple(dict.fromkeys(ids.tolist()))
        (first, *_) = csv.DictReader(io.StringIO(found.per_query_csv()))
        assert first["query"] == "q [1] \n{}"

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "other", "version": 1}', "null"])
    def test_other_json_is_refused(self, text):
        with pytest.raises(ValueError, match="not a comparison"):
            Comparison.from_json(text)

    def test_json_with_a_number_that_is_not_finite_is_refused(self, found):
        text = found.to_json()
        for number in ("1e999", "NaN", "-Infinity"):
            with pytest.raises(ValueError, match=f"the number {number} is not finite"):
                Comparison.from_json(
                    re.sub(r'("predict_seconds": )[-0-9.e]+', rf"\g<1>{number}", text, count=1)
                )

    @pytest.mark.parametrize(
        ("where", "value", "message"),
        [
            (["against"], "other", "against is 'other'"),
            (["methods", 1], "other", "has other methods"),
            (["metrics"], ["map", "map"], "metrics must be different"),
            (["metrics"], [], "has data sets, methods and metrics"),
            (["metrics", 0], "p@3", "has no mean of 'p@3'"),
            (["datasets", 0, "statement"], 5, "'statement' must be str; got int"),
            (["datasets", 0, "methods", 1, "folds", 0, "fold"], "other", "has other folds"),
            (["datasets", 0, "methods", 1, "folds", 0, "queries", 0], 99, "has other queries"),
            (
                ["datasets", 0, "methods", 1, "folds", 0, "per_query", "map"],
                [0.5],
                "must have 8 values of 'map'",
            ),
            (["datasets", 0, "methods", 1, "folds", 0, "predict_seconds"], None, "must be int or float"),
            (["datasets", 0, "methods", 1, "folds", 0, "predict_seconds"], 10**400, "is too large"),
            (["datasets", 0, "data", "Fold1", "lengths"], [1], "lengths and relevant must be as many"),
            (["datasets", 0, "data", "Fold1", "shown", 0], 99, "shows a query that it does not have"),
        ],
    )
    def test_json_that_does_not_fit_together_is_refused(self, found, where, value, message):
        record = json.loads(found.to_json())
        *path, last = where
        functools.reduce(lambda data, key: data[key], path, record)[last] = value
        with pytest.raises(ValueError, match="not a comparison that sinkprop wrote") as error:
            Comparison.from_json(json.dumps(record))
        assert message in str(error.value)

    def test_csv_lines(self, found):
        rows = list(csv.DictReader(io.StringIO(found.to_csv())))
        assert list(rows[0]) == ["dataset", "fold", "method", "metric", "value"]
        assert len(rows) == 3 * 4 * (4 + 2)  # methods, folds and mean, metrics and seconds
        means = {(r["method"], r["metric"]): float(r["value"]) for r in rows if r["fold"] == "mean"}
        for method in found.methods:
            for metric in found.metrics:
                assert means[method, metric] == found.mean("x", method, metric)
                own = [
                    float(r["value"])
                    for r in rows
                    if (r["method"], r["metric"]) == (method, metric) and r["fold"] != "mean"
                ]
                assert own == list(found.fold_means("x", method, metric).values())
        lines = list(csv.DictReader(io.StringIO(found.per_query_csv())))
        assert len(lines) == 3 * 27 * 4
        total = sum(
            float(r["value"])
            for r in lines
            if (r["fold"], r["method"], r["metric"]) == ("Fold2", "feature:1", "map")
        )
        assert total / 9 == pytest.approx(found.fold_means("x", "feature:1", "map")["Fold2"], abs=1e-15)

    def test_published_rows(self):
        assert len(published_rows("OHSUMED")) == 48
        names = ["HP2003", "HP2004", "NP2003", "NP2004", "OHSUMED", "TD2003", "TD2004"]
        assert sum(len(published_rows(name)) for name in names) == 221
        rows = published_rows("td2004")
        best = [row.means.get("ndcg@10", -1.0) for row in rows]
        assert best == sorted(best, reverse=True)
        assert {row.method: row.means for row in rows}["LambdaMART"] == {"ndcg@3": 0.3584, "map": 0.2513}


class TestPicture:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls):
        folds = some_folds(1)
        names = ["HP2003", "NP2003", "TD2003", "OHSUMED", "HP2004", "NP2004", "TD2004"]
        return compare(dict.fromkeys(sorted(names), folds), CHEAP, metrics="ndcg@1-10,map", n_jobs=1)

    def test_seven_panels_as_in_the_paper(self, found, tmp_path):
        pytest.importorskip("matplotlib", reason="pictures need the extra plot")
        path = tmp_path / "figure.svg"
        plot(found, path)
        text = path.read_text("utf-8")
        places = [text.index(f">{name}<") for name in ("HP2003", "NP2003", "TD2003", "OHSUMED", "HP2004")]
        assert places == sorted(places)
        for label in (
            "regression",
            "feature:1",
            "SmoothRank (published)",
            "truncation level k",
            "test NDCG@k",
        ):
            assert f">{label}<" in text
        before = path.read_bytes()
        plot(found, path)
        assert path.read_bytes() == before
        plot(found, path, published=())
        assert "published" not in path.read_text("utf-8")
        plot(found, path, published=["ListNet"])
        assert text.count("LRUF") == 0
        assert ">ListNet (published)<" in path.read_text("utf-8")

    def test_png_is_whole(self, found, tmp_path):
        pytest.importorskip("matplotlib", reason="pictures need the extra plot")
        import matplotlib.image

        plot(found, tmp_path / "figure.png")
        pixels = matplotlib.image.imread(tmp_path / "figure.png")
        assert pixels.shape[1] > pixels.shape[0] > 600
        assert pixels[..., :3].std() > 0.01

    def test_one_level_is_no_line(self, tmp_path):
        found = compare(some_folds(1), "regression", metrics="ndcg@10,map", n_jobs=1)
        with pytest.raises(ValueError, match="two levels or more"):
            plot(found, tmp_path / "figure.png")
        assert list(tmp_path.iterdir()) == []


def test_importing_it_loads_no_more_than_numpy():
    code = "import sinkprop.experiment, sys; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) & {"sklearn", "scipy", "joblib", "matplotlib", "rich", "click"} == set()


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_workers_never_see_an_interrupt():
    code = (
        "from sinkprop.experiment.workers import _start\n"
        "import signal, joblib\n"
        "def blocked(): return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
        "_start({'n_jobs': 2}, 2)\n"
        "assert not blocked()\n"
        "print(joblib.Parallel(2)(joblib.delayed(blocked)() for _ in range(4)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (run.stdout, run.returncode) == ("[True, True, True, True]\n", 0), run.stderr
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.slow
@pytest.mark.skipif(not (DATA / "ohsumed").is_dir(), reason="OHSUMED is not in the folder SINKPROP_DATA")
def test_the_published_regression_row_of_ohsumed(tmp_path):
    parts = [lzma.decompress((DATA / "ohsumed" / f"S{i}.txt.xz").read_bytes()) for i in range(1, 6)]
    for fold in range(5):
        folder = tmp_path / "OHSUMED" / f"Fold{fold + 1}"
        folder.mkdir(parents=True)
        rotated = [parts[(fold + i) % 5] for i in range(5)]
        (folder / "train.txt").write_bytes(b"".join(rotated[:3]))
        (folder / "vali.txt").write_bytes(rotated[3])
        (folder / "test.txt").write_bytes(rotated[4])
    (data,) = find_data_sets(tmp_path / "OHSUMED")
    assert all(isinstance(fold, FoldFiles) for fold in data.folds)
    found = compare({data.name: data.folds}, "regression")
    assert found.n_queries("OHSUMED") == 106
    published = {row.method: row.means for row in published_rows("OHSUMED")}["Regression"]
    means = found.means("OHSUMED")["regression"]
    assert {metric: round(means[metric], 4) for metric in published} == published
    assert published == {"ndcg@3": 0.4426, "ndcg@5": 0.4278, "ndcg@10": 0.4110, "map": 0.4220}
