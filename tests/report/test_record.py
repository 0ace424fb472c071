"""The data of a report: against the library's own functions, and for data of every awkward kind."""

from __future__ import annotations

import base64
import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import sinkprop
from sinkprop import Fold, Queries, SinkPropRanker, SmoothedIndicator, doubly_stochastic, evaluate
from sinkprop.baselines import (
    FeatureRanker,
    ListNetRanker,
    RegressionRanker,
    SmoothRankRanker,
    SoftRankRanker,
)
from sinkprop.calibration import RankCalibration, calibration_report
from sinkprop.calibration.widths import RankMixture
from sinkprop.experiment import Comparison, compare
from sinkprop.experiment.details import Budget, details_of, fold_data
from sinkprop.experiment.rounding import rounded_scores
from sinkprop.experiment.trace import training_of
from sinkprop.experiment.weights import weights_of
from sinkprop.metrics.conventions import CONVENTIONS
from sinkprop.metrics.ranking import ranking
from sinkprop.report.record import comparison_report, models_report

NAMES = ("words", "noise", "length")


def queries(first, n_queries, n=10, *, seed=0, ids=None, docid=True):
    rng = np.random.default_rng([seed, first])
    X = rng.normal(size=(n_queries * n, 3)) * [1, 1, 100]
    y = np.digitize(X[:, 0] + X[:, 2] / 200 + 0.7 * rng.normal(size=len(X)), [0.5, 1.5])
    qid = np.repeat(np.arange(first, first + n_queries) if ids is None else np.array(ids, dtype=object), n)
    names = np.array([f"D{first}-{i}" for i in range(len(X))]) if docid else None
    return Queries(X, y, qid, names, NAMES)


def fold(number, **more):
    return Fold(f"Fold{number}", queries(0, 12), queries(20, 6), queries(10 * number + 30, 5, **more))


def quick(**parameters):
    """A SinkPropRanker of few stages."""
    best = sinkprop.Selection("validation", rule="best")
    settings = {"penalty": (1e-4, 1e-2), "annealing": sinkprop.Annealing(4.0, 0.5), "selection": best}
    return SinkPropRanker(**{**settings, **parameters})


def fitted(ranker, own=None):
    own = fold(1) if own is None else own
    train, vali = own.train, own.vali
    return ranker.fit(train.X, train.y, qid=train.qid, eval_set=[(vali.X, vali.y)], eval_qid=[vali.qid])


def rows_of(part, query):
    return np.flatnonzero(part.qid == query)


@pytest.fixture(scope="module")
def found():
    methods = {"regression": "regression", "sinkprop": quick(), "bm25": FeatureRanker(1)}
    return compare([fold(1), fold(2)], methods, metrics="ndcg@1-10,map", n_jobs=1)


@pytest.fixture(scope="module")
def data(found):
    return comparison_report(found, title="A title", command="sinkprop compare x")


class TestComparison:
    def test_it_is_plain_json_with_the_names_that_the_page_takes(self, data):
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        assert (data["format"], data["version"], data["title"]) == ("sinkprop-report", 1, "A title")
        assert data["library"] == sinkprop.__version__
        assert [m["name"] for m in data["methods"]] == ["regression", "sinkprop", "bm25"]
        assert [m["ours"] for m in data["methods"]] == [False, True, False]
        assert data["main"] == "ndcg@10"
        assert data["against"] == "regression"
        assert data["subtitle"] == "3 methods, 2 folds, 10 test queries"

    def test_numbers_are_those_of_the_comparison_and_of_evaluate(self, found, data):
        (own,) = data["datasets"]
        ranker = fitted(quick())
        test = fold(1).test
        result = evaluate(test.y, ranker.predict(test.X), test.qid, "ndcg@1-10,map")
        places = [i for i, q in enumerate(own["queries"]) if q["fold"] == "Fold1"]
        for metric in data["metrics"]:
            assert own["means"]["sinkprop"][metric] == found.mean("data", "sinkprop", metric)
            assert own["folds"]["sinkprop"]["Fold1"][metric] == result[metric]
            values = [own["per_query"]["sinkprop"][metric][i] for i in places]
            assert_allclose(values, result.per_query[metric], atol=1e-7)
            assert own["intervals"]["sinkprop"][metric] == list(found.intervals("data")["sinkprop"][metric])
        assert [own["queries"][i]["id"] for i in places] == result.queries.tolist()
        assert own["tests"] == found.test_records("data")
        assert own["statement"] == found.describe("data")

    def test_the_glance_counts_test_queries(self, data):
        (own,) = data["datasets"]
        tests = [fold(number).test for number in (1, 2)]
        labels = np.concatenate([part.y for part in tests])
        assert (own["glance"]["queries"], own["glance"]["documents"], own["glance"]["features"]) == (
            10,
            100,
            3,
        )
        assert own["glance"]["lengths"]["values"] == [10] * 10
        values, counts = np.unique(labels, return_counts=True)
        assert own["glance"]["labels"] == {"values": values.tolist(), "counts": counts.tolist()}
        assert own["glance"]["parts"][0] == {
            "fold": "Fold1",
            "part": "train",
            "queries": 12,
            "documents": 120,
        }
        first = own["queries"][0]
        assert first["relevant"] == int((tests[0].y[rows_of(tests[0], first["id"])] >= 1).sum())

    def test_the_explorer_has_the_documents_in_file_order_and_scores_that_order_them(self, data):
        (own,) = data["datasets"]
        test, ranker = fold(1).test, fitted(quick())
        assert own["explorer"]["note"] is None
        for entry in own["explorer"]["queries"][:5]:
            rows = rows_of(test, own["queries"][entry["query"]]["id"])
            assert entry["labels"] == test.y[rows].tolist()
            assert entry["docids"] == test.docid[rows].tolist()
            assert_allclose(entry["scores"]["sinkprop"], ranker.predict(test.X[rows]), atol=1e-5)
            assert_allclose(entry["scores"]["bm25"], test.X[rows, 0], atol=1e-5)

    def test_the_models_own_distribution_can_be_made_from_the_data(self, data):
        (own,) = data["datasets"]
        test, ranker = fold(1).test, fitted(quick())
        entry, given = own["explorer"]["queries"][0], own["explorer"]["distributions"]["sinkprop"]["Fold1"]
        assert given["own"]
        Pi = doubly_stochastic(
            entry["scores"]["sinkprop"],
            relaxation=SmoothedIndicator(given["sigma"], given["kernel"]),
            n_iter=given["n_iter"],
            epsilon=given["epsilon"],
        )
        rows = rows_of(test, own["queries"][entry["query"]]["id"])
        expected = ranker.rank_distribution(test.X[rows], calibrated=False)
        assert_allclose(Pi, expected, atol=1e-4)

    def test_scores_without_probabilities_get_the_same_relative_width(self, data):
        distributions = data["datasets"][0]["explorer"]["distributions"]
        queries_ = data["datasets"][0]["explorer"]["queries"]

        def relative(method, name):
            own = [
                q["scores"][method]
                for q in queries_
                if data["datasets"][0]["queries"][q["query"]]["fold"] == name
            ]
            return distributions[method][name]["sigma"] / np.std([x - np.mean(s) for s in own for x in s])

        given = distributions["regression"]["Fold1"]
        assert not given["own"]
        assert "the same ratio as for sinkprop" in given["explanation"]
        shared = np.median([relative("sinkprop", name) for name in ("Fold1", "Fold2")])
        assert_allclose([relative(m, "Fold2") for m in ("regression", "bm25")], shared)

    def test_json_keeps_all_of_it(self, found, data):
        again = Comparison.from_json(found.to_json())
        assert comparison_report(again, title="A title", command="sinkprop compare x") == data
        assert json.loads(found.to_json())["version"] == 2

    def test_a_comparison_without_details_lacks_the_sections_that_need_them(self, found):
        record = found.as_record()
        old = {**record, "version": 1}
        del old["descriptions"], old["ours"]
        for one in old["datasets"]:
            del one["data"]
            for method in one["methods"]:
                for own in method["folds"]:
                    del own["details"]
        again = Comparison.from_json(json.dumps(old))
        (own,) = comparison_report(again)["datasets"]
        assert (own["glance"], own["explorer"], own["training"], own["weights"]) == (None, None, {}, {})
        assert own["means"] == found.means("data")
        assert own["queries"][0]["documents"] is None

    def test_a_fit_that_chooses_from_an_infinite_penalty_is_json_too(self):
        methods = {"softrank": SoftRankRanker(sigma=0.5, penalty=(0.1, 1.0))}
        found = compare([fold(1)], methods, metrics="map", n_jobs=1)
        (own,) = json.loads(found.to_json())["datasets"][0]["methods"][0]["folds"]
        assert own["summary"]["tried"]["penalty"] == [None, 1.0, 0.1]
        (data,) = comparison_report(Comparison.from_json(found.to_json()))["datasets"]
        steps = data["training"]["softrank"]["Fold1"]["steps"]
        assert [step["path"] for step in steps] == [None, "penalty 1", "penalty 0.1"]
        assert [step["sigma"] for step in steps] == [None, 0.5, 0.5]

    def test_names_of_queries_and_words_about_the_data(self, found):
        (own,) = comparison_report(found, about={"data": "What it is."}, query_names={40: "to read a file"})[
            "datasets"
        ]
        assert own["about"] == "What it is."
        assert {q["id"]: q["name"] for q in own["queries"]}[40] == "to read a file"
        assert {q["id"]: q["name"] for q in own["queries"]}[41] is None


class TestAwkwardData:
    def of(self, *folds, methods="regression", **options):
        sets = folds[0] if isinstance(folds[0], dict) else list(folds)
        data = comparison_report(compare(sets, methods, metrics="ndcg@3,map", n_jobs=1, **options))
        json.dumps(data, allow_nan=False)
        return data

    def test_one_query_of_one_document(self):
        test = queries(90, 1, n=1)
        (own,) = self.of(replace(fold(1), test=test))["datasets"]
        assert own["glance"]["queries"] == own["glance"]["documents"] == 1
        assert own["explorer"]["queries"][0]["scores"]["regression"][0] == pytest.approx(
            fitted(RegressionRanker()).predict(test.X)[0]
        )
        assert own["explorer"]["distributions"]["regression"]["Fold1"]["sigma"] > 0

    def test_no_relevant_document_left_out_of_the_means(self):
        test = queries(90, 3)
        y = np.where(test.qid == 91, 0, test.y)
        rules = replace(CONVENTIONS["letor"], empty="skip")
        (own,) = self.of(replace(fold(1), test=replace(test, y=y)), convention=rules)["datasets"]
        assert own["per_query"]["regression"]["map"][1] is None
        assert own["per_query"]["regression"]["map"][0] is not None
        assert own["glance"]["without_relevant"] == 1
        assert own["queries"][1]["relevant"] == 0

    def test_text_as_ids_no_docids_and_no_names(self):
        test = queries(90, 2, ids=["how to <b>", "où?"], docid=False)
        parts = [replace(part, feature_names=None) for part in (fold(1).train, fold(1).vali, test)]
        (own,) = self.of(Fold("Fold1", *parts))["datasets"]
        assert [q["id"] for q in own["queries"]] == ["how to <b>", "où?"]
        assert own["explorer"]["queries"][0]["docids"] is None
        assert own["weights"]["regression"]["features"] == ["feature 1", "feature 2", "feature 3"]

    def test_a_query_that_two_folds_test_counts_once_at_a_glance(self):
        (own,) = self.of(fold(1), replace(fold(1), name="Fold2"))["datasets"]
        assert own["glance"]["queries"] == 5
        assert sum(own["glance"]["labels"]["counts"]) == own["glance"]["documents"] == 50
        assert [q["fold"] for q in own["queries"]] == ["Fold1"] * 5 + ["Fold2"] * 5

    def test_several_data_sets(self):
        data = self.of({"a": [fold(1)], "b": [fold(2)]})
        assert [own["name"] for own in data["datasets"]] == ["a", "b"]
        assert data["title"] == "Comparison on a and b"
        assert data["subtitle"] == "1 method, 2 data sets, 10 test queries"

    def test_many_queries_are_listed_in_part_and_it_says_so(self, monkeypatch, found):
        monkeypatch.setattr("sinkprop.report.record.MAX_VALUES", 30)
        (own,) = comparison_report(found)["datasets"]
        assert list(own["per_query"]["sinkprop"]) == ["ndcg@10"]
        monkeypatch.setattr("sinkprop.report.record.MAX_QUERIES", 4)
        stripped = replace(found, data={})
        (own,) = comparison_report(stripped)["datasets"]
        assert len(own["queries"]) == len(own["per_query"]["sinkprop"]["ndcg@10"]) == 4
        assert own["per_query_note"] == "An even sample of 4 of 10 queries; the means are over all queries."

    def test_of_long_trainings_the_chosen_setting_is_kept(self, monkeypatch, found, data):
        monkeypatch.setattr("sinkprop.report.record.MAX_STEPS", 8)
        (own,) = comparison_report(found)["datasets"]
        for name, record in own["training"]["sinkprop"].items():
            whole = data["datasets"][0]["training"]["sinkprop"][name]
            chosen = whole["steps"][whole["chosen"]]
            assert record["steps"][record["chosen"]] == chosen
            assert len(record["steps"]) <= 5
            assert {step["path"] for step in record["steps"]} <= {None, chosen["path"]}
            assert f"{len(record['steps'])} of 9 steps, of the chosen setting" in record["message"]

    def test_documents_are_kept_of_some_queries_only_and_it_says_so(self, monkeypatch):
        monkeypatch.setattr("sinkprop.experiment.details.MAX_QUERIES", 2)
        (own,) = self.of(fold(1))["datasets"]
        assert [entry["query"] for entry in own["explorer"]["queries"]] == [0, 4]
        assert own["explorer"]["note"] == "The explorer has an even sample of 2 of 5 test queries."


class TestScores:
    @given(
        st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=30),
        st.sampled_from([0.0, 1e-3, 1e-9, 1e-13]),
        st.floats(1e-6, 1e6),
    )
    def test_rounding_keeps_order_and_ties(self, values, apart, scale):
        x = np.array([*values, *(np.array(values[:5]) + apart)]) * scale
        y = np.array(rounded_scores(x))
        assert_array_equal(np.sign(x[:, None] - x), np.sign(y[:, None] - y))
        assert_allclose(y, x, atol=1e-6 * max(float(np.std(x)), np.finfo(float).tiny))

    def test_neighboring_numbers_stay_different(self):
        x = np.array([1.0, np.nextafter(1.0, 2), 0.0, 5e-324])
        assert rounded_scores(x) == tuple(x.tolist())

    @given(st.lists(st.integers(1, 3000), min_size=1, max_size=60), st.integers(1, 20), st.integers(1, 9000))
    def test_a_budget_is_kept(self, lengths, n_queries, n_documents):
        sizes = np.array(lengths)
        taken = Budget(n_queries, n_documents).chosen(sizes)
        assert len(taken) <= n_queries
        assert len(set(taken.tolist())) == len(taken)
        assert len(taken) <= 1 or sizes[taken].sum() <= n_documents
        assert (len(taken) > 0) == (sizes <= 2000).any()
        assert (sizes[taken] <= 2000).all()


def shown(ranker, test, **parts):
    data = fold_data({"test": test}, budget=Budget(100, 10_000))
    return data, details_of(ranker, test, data, **parts)


class TestOtherDistributions:
    def test_the_matrix_of_a_partitioned_measure_is_the_models_own(self):
        test = fold(1).test
        model = fitted(
            quick(
                relaxation=sinkprop.PartitionedMeasure("logit-logistic"),
                annealing=sinkprop.Annealing(1, 1),
                penalty=0.01,
            )
        )
        (own,) = models_report({"m": model}, test)["datasets"]
        ranks = model.rank(test.X, qid=test.qid)
        for entry in own["explorer"]["queries"]:
            rows = rows_of(test, own["queries"][entry["query"]]["id"])
            P = np.frombuffer(base64.b64decode(entry["matrices"]["m"]), np.uint8).reshape(10, 10)
            expected = model.rank_distribution(test.X[rows], calibrated=False)
            assert_allclose(P / 255 * entry["peaks"]["m"], expected, atol=0.5 / 255)
            # an assignment is the order of its own ranks
            assert_array_equal(ranking(entry["scores"]["m"], np.zeros(10)).ranks, ranks[rows])
        assert own["explorer"]["distributions"]["m"]["test"]["own"]

    def test_the_matrix_of_softrank_is_its_own(self):
        test, model = fold(1).test, fitted(SoftRankRanker(sigma=0.5, penalty=0.01, balance=True))
        (own,) = models_report({"m": model}, test)["datasets"]
        entry = own["explorer"]["queries"][2]
        P = np.frombuffer(base64.b64decode(entry["matrices"]["m"]), np.uint8).reshape(10, 10)
        rows = rows_of(test, own["queries"][entry["query"]]["id"])
        expected = model.rank_distribution(test.X[rows], calibrated=False)
        assert_allclose(P / 255 * entry["peaks"]["m"], expected, atol=0.5 / 255 + 1e-5)

    def test_matrices_stop_when_they_take_too_much_room(self, monkeypatch):
        # 50 scores take 6 each
        monkeypatch.setattr("sinkprop.report.explorer.MAX_CELLS", 250 + 300)
        model = fitted(
            quick(
                relaxation=sinkprop.PartitionedMeasure("probit"),
                annealing=sinkprop.Annealing(1, 1),
                penalty=0.01,
            )
        )
        (own,) = models_report({"m": model}, fold(1).test)["datasets"]
        assert [len(entry["matrices"]) for entry in own["explorer"]["queries"]] == [1, 1, 0, 0, 0]
        assert "show the order of the documents only" in own["explorer"]["note"]

    def test_the_limit_is_shown_with_many_iterations(self):
        model = fitted(quick(n_iter="converged", penalty=0.01))
        test = fold(1).test
        (own,) = models_report({"m": model}, test)["datasets"]
        given = own["explorer"]["distributions"]["m"]["test"]
        assert (given["sigma"], given["n_iter"], given["own"]) == (model.sigma_, 50, True)
        family = fitted(quick(relaxation="probit", n_iter="converged", penalty=0.01))
        (own,) = models_report({"m": family}, test)["datasets"]
        assert "m" in own["explorer"]["queries"][0]["matrices"]

    def test_smoothrank_is_shown_with_its_own_width_after_whole_iterations(self):
        model = fitted(SmoothRankRanker(penalty=0.01))
        (own,) = models_report({"m": model}, fold(1).test)["datasets"]
        given = own["explorer"]["distributions"]["m"]["test"]
        assert (given["sigma"], given["n_iter"], given["own"]) == (model.sigma_, 5, False)
        assert "half" in given["explanation"] or "0.5 iterations" in given["explanation"]


class TestCalibration:
    HELD_OUT = queries(200, 30)

    def test_a_calibrated_model_is_compared_with_the_labels_of_all_test_queries(self):
        test, plain = fold(1).test, fitted(RegressionRanker(penalty=0.1, selection="validation"))
        model = fitted(quick()).calibrate(self.HELD_OUT)
        (own,) = models_report({"plain": plain, "m": model}, test)["datasets"]
        report = calibration_report(
            model.calibration_, model.predict(test), test.y, test.qid, sigma=model.relaxation_.sigma
        )
        assert own["calibration"] == {"m": {"test": report.record()}}
        json.dumps(own, allow_nan=False)

    def test_the_explorer_has_the_calibration_in_place_of_a_width(self):
        test, model = fold(1).test, fitted(quick()).calibrate(self.HELD_OUT)
        (own,) = models_report({"m": model}, test)["datasets"]
        given = own["explorer"]["distributions"]["m"]["test"]
        assert given["calibrated_on"] == 30
        arrays = {key: np.array(given["mixture"][key]) for key in ("widths", "weights", "lengths")}
        again = RankCalibration(RankMixture.from_record(given["mixture"] | arrays))
        for entry in own["explorer"]["queries"]:
            rows = rows_of(test, own["queries"][entry["query"]]["id"])
            Pi = again.rank_distribution(entry["scores"]["m"])
            assert_allclose(Pi, model.rank_distribution(test.X[rows]), atol=1e-4)
            assert entry["matrices"] == {}

    def test_a_calibrated_softrank_has_no_matrix_of_its_own(self):
        model = fitted(SoftRankRanker(sigma=0.5, penalty=0.01)).calibrate(self.HELD_OUT)
        (own,) = models_report({"m": model}, fold(1).test)["datasets"]
        assert own["explorer"]["queries"][0]["matrices"] == {}
        assert own["explorer"]["distributions"]["m"]["test"]["calibrated_on"] == 30

    def test_an_assignment_is_shown_by_its_own_matrix(self):
        model = fitted(
            quick(
                relaxation=sinkprop.PartitionedMeasure("probit"),
                annealing=sinkprop.Annealing(1, 1),
                penalty=0.01,
            )
        )
        (own,) = models_report({"m": model.calibrate(self.HELD_OUT)}, fold(1).test)["datasets"]
        assert list(own["explorer"]["queries"][0]["matrices"]) == ["m"]
        assert "calibrated_on" not in own["explorer"]["distributions"]["m"]["test"]
        assert own["calibration"]["m"]["test"]["n_calibrating"] == 30

    def test_a_comparison_does_not_calibrate_and_keeps_what_it_is_given(self, found, data):
        assert data["datasets"][0]["calibration"] == {}
        assert all(result.details.calibration is None for result in found.results)
        model = fitted(quick()).calibrate(self.HELD_OUT)
        _, details = shown(model, fold(1).test, calibration=True)
        again = type(details).from_record(json.loads(json.dumps(details.as_record(), allow_nan=False)))
        assert again.calibration == details.calibration


class TestTraining:
    def test_stages_with_the_criterion_of_training_and_validation_queries(self):
        own, model = fold(1), fitted(quick())
        record = training_of(model)
        stages = model.fit_result_.stages
        assert len(record["steps"]) == len(stages) == 1 + 2 * 4
        chosen = record["steps"][record["chosen"]]
        for part, name in ((own.train, "training"), (own.vali, "validation")):
            result = evaluate(part.y, model.predict(part.X), part.qid, "ndcg@1-10")
            assert chosen[name] == pytest.approx(np.mean(list(result.values())), rel=1e-6)
        assert [s["path"] for s in record["steps"][:2]] == [None, "penalty 0.0001"]
        assert [s["sigma"] for s in record["steps"][1:5]] == [4, 2, 1, 0.5]
        assert record["steps"][0]["sigma"] is None
        for step, stage in zip(record["steps"], stages, strict=True):
            assert step["expected_gain"] == pytest.approx(stage.expected_gain, rel=1e-6)
        assert (record["unit"], record["status"]) == ("stage", "finished")
        assert record["criterion"] == "ndcg@1-10"

    def test_where_patience_ended_a_path(self):
        model = fitted(
            quick(
                annealing=sinkprop.Annealing(),
                selection=sinkprop.Selection("validation", rule="best", patience=1),
            )
        )
        record = training_of(model)
        paths = [step["path"] for step in record["steps"]]
        assert record["stopped"]
        for i in record["stopped"]:
            assert paths.count(paths[i]) < 8
            assert i + 1 == len(paths) or paths[i + 1] != paths[i]
            before, last = record["steps"][i - 1], record["steps"][i]
            assert paths[i - 1] != paths[i] or last["validation"] <= before["validation"]

    def test_models_of_before_it_was_kept_have_none(self, tmp_path):
        from sinkprop.model_files import read_model, write_model

        for model, steps in (
            (fitted(quick()), "stages"),
            (fitted(ListNetRanker(penalty=(1.0, 0.1))), "trials"),
        ):
            model.save(tmp_path / "m")
            state = read_model(tmp_path / "m").state
            for step in state["fitted"][steps]:
                del step["training"]
            write_model(tmp_path / "m", type(model).__name__, state)
            record = training_of(sinkprop.load_model(tmp_path / "m"))
            assert [step["training"] for step in record["steps"]] == [None] * len(record["steps"])
            assert record["steps"][0]["validation"] is not None

    def test_a_checkpoint_of_before_it_was_kept_goes_on(self, tmp_path):
        from sinkprop.model_files import read_model, write_model

        path = tmp_path / "check"

        def interrupt(stage):
            if stage.sigma == 1:
                raise KeyboardInterrupt

        with pytest.warns(RuntimeWarning, match="interrupted"):
            fitted(quick(checkpoint=path, on_stage=interrupt))
        kept = read_model(path)
        for stage in kept.state["stages"]:
            del stage["training"]
        write_model(path, "SinkPropRankerCheckpoint", kept.state)
        resumed, whole = fitted(quick(checkpoint=path)), fitted(quick())
        assert_array_equal(resumed.coef_, whole.coef_)
        trained = [stage.training for stage in resumed.fit_result_.stages]
        assert trained[:4] == [None] * 4
        assert trained[4:] == [stage.training for stage in whole.fit_result_.stages[4:]]

    def test_candidates_and_one_candidate(self):
        model = fitted(ListNetRanker(penalty=(1.0, 0.1, 0.01)))
        record, train = training_of(model), fold(1).train
        assert [step["label"] for step in record["steps"]] == ["penalty 1", "penalty 0.1", "penalty 0.01"]
        result = evaluate(train.y, model.predict(train.X), train.qid, "ndcg@1-10")
        chosen = record["steps"][record["chosen"]]
        assert chosen["training"] == pytest.approx(np.mean(list(result.values())), rel=1e-6)
        assert training_of(fitted(RegressionRanker())) is None
        assert training_of(object()) is None

    def test_rounds_of_boosted_trees(self):
        pytest.importorskip("lightgbm", reason="BoostedRanker needs LightGBM")
        from sinkprop.gbdt import BoostedRanker, Derivatives, TreeLoss

        own = fold(1)
        model = fitted(BoostedRanker(n_estimators=25, early_stopping_rounds=None, n_threads=1))
        record = training_of(model)
        assert [step["number"] for step in record["steps"]] == list(range(1, 26))
        assert [step["validation"] for step in record["steps"]] == pytest.approx(
            model.fit_result_.values, rel=1e-6
        )
        known = {step["number"]: step["training"] for step in record["steps"] if step["training"] is not None}
        value = Derivatives(TreeLoss(), own.train.y, own.train.groups).value
        for number in (10, 20):
            scores = model.booster_.predict(own.train.X, num_iteration=number, raw_score=True)
            assert known.pop(number) == pytest.approx(value(scores), rel=1e-6)
        assert known == {}
        stopped = training_of(fitted(BoostedRanker(early_stopping_rounds=3, n_threads=1)))
        assert stopped["stopped"] == [len(stopped["steps"]) - 1]
        assert stopped["status"] == "stopped early"

    def test_tuned_trees(self):
        pytest.importorskip("lightgbm", reason="LightGBMRanker needs LightGBM")
        from sinkprop.baselines import LightGBMRanker

        own = fold(1)
        model = fitted(
            LightGBMRanker(n_estimators=8, step=4, num_leaves=(3, 4), min_child_samples=5, n_threads=1)
        )
        record = training_of(model)
        assert [step["number"] for step in record["steps"]] == [4, 8, 4, 8]
        assert len({step["path"] for step in record["steps"]}) == 2
        result = evaluate(own.train.y, model.predict(own.train.X), own.train.qid, "ndcg@1-10")
        chosen = record["steps"][record["chosen"]]
        assert chosen["training"] == pytest.approx(np.mean(list(result.values())), rel=1e-6)

    def test_epochs_of_a_network(self):
        pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")
        from sinkprop.torch import MLP, Adam, NeuralRanker

        own, network = fold(1), MLP((8,), dropout=0.0)
        model = fitted(NeuralRanker(network=network, optimizer=Adam(0.03), max_epochs=20, n_threads=1))
        record = training_of(model)
        looked = [step["number"] for step in record["steps"] if step["training"] is not None]
        assert looked == [1, 4, 8, 12, 16, 20]
        chosen, epochs = record["steps"][record["chosen"]], model.fit_result_.epochs
        assert chosen["validation"] == max(step["validation"] for step in record["steps"])
        assert [step["sigma"] for step in record["steps"]] == pytest.approx(
            [e.sigma for e in epochs], rel=1e-6
        )
        gains = [step["expected_gain"] for step in record["steps"]]
        assert gains == pytest.approx([-epoch.loss for epoch in epochs], rel=1e-6)
        weights = weights_of(model, rows=own.train, measured_on=own.vali)
        assert weights["kind"] == "importance"
        assert "validation" in weights["explanation"]
        assert min(weights["values"]) == weights["values"][1] < 0.1  # the labels know nothing of it
        assert sum(weights["values"]) == pytest.approx(1)


class TestWeights:
    def test_weights_are_shares_of_standardized_features(self):
        own = fold(1)
        for model in (fitted(quick()), fitted(RegressionRanker())):
            scaled = np.asarray(model.coef_)
            if model.scaling_.kind == "none":
                scaled = scaled * own.train.X.std(axis=0)
            found = weights_of(model, rows=own.train, measured_on=own.vali)
            assert found["kind"] == "weight"
            assert_allclose(found["values"], scaled / np.abs(scaled).sum(), rtol=1e-6)

    def test_of_partitioned_measures_it_is_the_way_to_the_top(self):
        own = fold(1)
        for family in ("logit-logistic", "beta"):
            model = fitted(
                quick(
                    relaxation=sinkprop.PartitionedMeasure(family),
                    annealing=sinkprop.Annealing(1, 1),
                    penalty=0.01,
                )
            )
            values = np.array(weights_of(model, rows=own.train, measured_on=own.vali)["values"])
            scores = model.predict(np.eye(3) * model.scaling_.shift + np.diag(1 / model.scaling_.factor))
            base = model.predict(np.eye(3) * model.scaling_.shift)
            slopes = scores - base
            assert_allclose(values, slopes / np.abs(slopes).sum(), rtol=1e-5)

    def test_one_feature_and_none(self):
        own = fold(1)
        model = fitted(FeatureRanker(-2))
        assert weights_of(model, rows=own.train, measured_on=own.vali)["values"] == [0, -1, 0]
        assert weights_of(object(), rows=own.train, measured_on=own.vali) is None

    def test_estimators_of_others(self):
        from sklearn.tree import DecisionTreeRegressor

        own = fold(1)
        model = DecisionTreeRegressor(max_depth=3, random_state=0).fit(own.train.X, own.train.y)
        found = weights_of(model, rows=own.train, measured_on=own.vali)
        assert found["kind"] == "importance"
        assert_allclose(found["values"], model.feature_importances_, rtol=1e-6)

    def test_gains_of_trees(self):
        pytest.importorskip("lightgbm", reason="BoostedRanker needs LightGBM")
        from sinkprop.gbdt import BoostedRanker

        own, model = fold(1), fitted(BoostedRanker(n_estimators=10, n_threads=1, importance_type="gain"))
        found = weights_of(model, rows=own.train, measured_on=own.vali)
        expected = model.feature_importances_ / model.feature_importances_.sum()
        assert found["kind"] == "importance"
        assert_allclose(found["values"], expected, rtol=1e-6)


class TestModels:
    def test_saved_models_are_measured_on_the_file(self, tmp_path):
        test = fold(1).test
        fitted(quick()).save(tmp_path / "a")
        models = {"ours": sinkprop.load_model(tmp_path / "a"), "least squares": fitted(RegressionRanker())}
        data = models_report(models, test, metrics="ndcg@5,map", title="T", name="test.txt")
        json.dumps(data, allow_nan=False)
        (own,) = data["datasets"]
        assert [m["ours"] for m in data["methods"]] == [True, False]
        for name, model in models.items():
            expected = evaluate(test.y, model.predict(test.X), test.qid, "ndcg@5,map")
            assert own["means"][name] == dict(expected)
        assert own["seconds"]["ours"]["fit"] is None
        assert own["statement"] == expected.definition()
        assert len(own["training"]["ours"]["test"]["steps"]) == 9  # the model's file has them
        assert own["glance"]["parts"] == [{"fold": "test", "part": "test", "queries": 5, "documents": 50}]

    def test_unsorted_rows_and_foreign_estimators(self):
        from sklearn.linear_model import LinearRegression

        test, own = fold(1).test, fold(1)
        shuffled = test.take(np.random.default_rng(0).permutation(len(test)))
        model = LinearRegression().fit(own.train.X, own.train.y)
        (data,) = models_report({"m": model}, shuffled)["datasets"]
        for entry in data["explorer"]["queries"]:
            rows = rows_of(shuffled, data["queries"][entry["query"]]["id"])
            assert entry["docids"] == shuffled.docid[rows].tolist()
            assert_allclose(entry["scores"]["m"], model.predict(shuffled.X[rows]), atol=1e-5)
        assert data["weights"]["m"]["kind"] == "weight"

    def test_no_model_is_an_error(self):
        with pytest.raises(ValueError, match="at least one fitted ranker"):
            models_report({}, fold(1).test)


def test_models_on_data_frames_with_missing_values_and_categories(tmp_path):
    pd = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("lightgbm", reason="lightgbm is not installed")
    from category_frames import features, frame

    from sinkprop.data.frames import load_frame
    from sinkprop.gbdt import BoostedRanker
    from sinkprop.report import write_report
    from sinkprop.store import save_queries

    rows = frame(pd, 10)
    ranker = BoostedRanker(n_estimators=5, min_child_samples=5, n_threads=1, verbose=False)
    ranker.fit(features(rows), rows["label"], qid=rows["qid"])
    queries = load_frame(rows, allow_nan=True)
    expected = models_report({"trees": ranker}, queries)
    renamed = rows.rename(columns={"qid": "query", "label": "grade"}).assign(note="text")
    stored = save_queries(tmp_path / "a.queries", queries)
    for found in (
        models_report({"trees": ranker}, rows),
        models_report({"trees": ranker}, renamed, qid="query", label="grade"),
        models_report({"trees": ranker}, stored),
    ):
        assert found["datasets"][0]["means"] == expected["datasets"][0]["means"]
    write_report(found, tmp_path / "a.html")
    with pytest.raises(TypeError, match="frame must be a pandas or polars DataFrame"):
        models_report({"trees": ranker}, [1, 2])
