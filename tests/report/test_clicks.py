"""The section of a report about clicks: its data against the rankers' own, and what a real browser shows."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import report_example as example
from browser import chromium, opened, serious_findings

import sinkprop
from sinkprop.baselines import RegressionRanker
from sinkprop.clicks import DependentClickModel, PositionBasedModel, debias, harvest_bias, simulate_clicks
from sinkprop.clicks.labels import CLIPS
from sinkprop.datasets import make_ranking
from sinkprop.experiment import compare
from sinkprop.model_files import read_model, write_model
from sinkprop.report import models_report, write_report

NEW = ("clip_choice", "click_model", "bias_method", "interval")  # keys that model files of 0.1 do not have
DASH = "\N{EN DASH}"


@pytest.fixture(scope="module")
def log():
    queries = make_ranking(40, random_state=3)
    users = PositionBasedModel(1 / np.arange(1.0, 7))
    return simulate_clicks(queries, queries.X[:, :2].T, 3000, users, k=6, policies=["old", "new"], seed=0)


@pytest.fixture(scope="module")
def bias(log):
    return harvest_bias(log)


@pytest.fixture(scope="module")
def rankers(log, bias):
    """Rankers trained on the log: by the defaults, by a given clip, and on click rates."""
    labels = {
        "robust": debias(log, bias),
        "weighted": debias(log, bias, method="inverse propensity", clip=0.05),
        "naive": debias(log, method="none"),
    }
    return {name: RegressionRanker().fit(own) for name, own in labels.items()}


def older(ranker, path):
    """A ranker whose model file lacks what the summaries of clicks had not before."""
    ranker.save(path)
    kept = read_model(path)
    for name in NEW:
        del kept.state["clicks"][name]
    write_model(path, kept.kind, kept.state)
    return sinkprop.load_model(path)


class TestRecord:
    TEST = make_ranking(8, random_state=4)

    def test_it_is_what_each_ranker_knows_of_its_clicks(self, rankers, log, bias):
        labels = RegressionRanker().fit(make_ranking(20, random_state=5))
        data = models_report({**rankers, "labels": labels}, self.TEST)
        (own,) = data["datasets"]
        assert own["clicks"] == {name: {"test": ranker.clicks_} for name, ranker in rankers.items()}
        assert json.loads(json.dumps(data, allow_nan=False)) == data
        robust = own["clicks"]["robust"]["test"]
        assert (robust["sessions"], robust["clicks"]) == (log.n_sessions, log.n_clicks)
        assert robust["examination"] == bias.examination.round(6).tolist()
        assert robust["interval"] == bias.interval.round(6).tolist()
        assert (robust["click_model"], robust["bias_method"]) == ("PositionBasedModel", "harvest")

    def test_model_files_keep_it_and_older_ones_are_shown_without_what_they_lack(self, rankers, tmp_path):
        rankers["robust"].save(tmp_path / "new")
        models = {
            "new": sinkprop.load_model(tmp_path / "new"),
            "old": older(rankers["robust"], tmp_path / "old"),
        }
        (own,) = models_report(models, self.TEST)["datasets"]
        assert own["clicks"]["new"]["test"] == rankers["robust"].clicks_
        lacking = {key: value for key, value in rankers["robust"].clicks_.items() if key not in NEW}
        assert own["clicks"]["old"]["test"] == lacking

    def test_reports_without_clicks_do_not_have_it(self):
        from sklearn.linear_model import LinearRegression

        train = make_ranking(20, random_state=5)
        foreign = LinearRegression().fit(train.X, train.y)
        foreign.clicks_ = np.zeros(3)
        (own,) = models_report({"m": RegressionRanker().fit(train), "f": foreign}, self.TEST)["datasets"]
        assert "clicks" not in own
        found = compare([sinkprop.Fold("1", train, train, self.TEST)], "regression", metrics="map", n_jobs=1)
        (own,) = sinkprop.report.comparison_report(found)["datasets"]
        assert "clicks" not in own


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def data(rankers, tmp_path_factory):
    """The report of the other tests, of which two methods share a log and a third has an old model file."""
    made = example.data()
    old = older(rankers["robust"], tmp_path_factory.mktemp("model") / "old").clicks_
    own = {example.OURS: rankers["robust"].clicks_, example.REFERENCE: rankers["weighted"].clicks_}
    own[example.ODD] = {**old, "examination": [1.0, 0.6, 0.3], "documents_unknown": 0}
    made["datasets"][0]["clicks"] = {name: {"Fold1": clicks} for name, clicks in own.items()}
    return made


@pytest.fixture(scope="module")
def report(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "clicks.html"
    write_report(data, path)
    return path.as_uri()


@pytest.fixture(scope="module")
def page(browser, report):
    with opened(browser, report) as page:
        page.evaluate("sinkpropReport.drawAll()")
        yield page


def shown(browser, tmp_path, data):
    path = tmp_path / "report.html"
    write_report(data, path)
    return opened(browser, path.as_uri())


def traces(page):
    page.evaluate("sinkpropReport.drawAll()")
    return {own["name"]: own for own in page.eval_on_selector("#clicks .chart", "node => node.data")}


def rows_of(table):
    return table.evaluate(
        "own => [...own.tBodies[0].rows].map(row => [...row.cells].map(c => c.textContent))"
    )


def opened_table(page, title):
    details = page.locator("#clicks details", has_text=title)
    details.locator("summary").click()
    return details.locator("table")


def close_tables(page):
    page.evaluate("document.querySelectorAll('details').forEach(own => { own.open = false; })")


def sentences(page):
    return page.locator("#clicks p.prose").all_text_contents()


def test_the_section_follows_that_of_the_training(page):
    links = page.locator("nav .links a").all_text_contents()
    assert links[links.index("Training") + 1] == "Clicks"
    ids = page.eval_on_selector_all("section", "all => all.map(own => own.id)")
    assert ids[ids.index("training") + 1] == "clicks"
    assert page.locator("#clicks [role=figure]").count() == 1
    assert not re.search(r"\b(undefined|NaN|null|true|false)\b", page.locator("#clicks").inner_text())
    assert page.evaluate("document.querySelectorAll('#page script, #page b, #page i').length") == 0


def test_curves_and_bands_are_those_of_the_rankers(page, bias):
    drawn = traces(page)
    both = f"{example.OURS} and {example.REFERENCE}"
    # the two methods that share a log share a line
    assert set(drawn) == {both, f"{both}, band", example.ODD}
    assert drawn[both]["x"] == [1, 2, 3, 4, 5, 6]
    assert drawn[both]["y"] == bias.examination.round(6).tolist()
    low, high = bias.interval.round(6).tolist()
    assert drawn[f"{both}, band"]["y"] == low + high[::-1]
    assert drawn[f"{both}, band"]["x"] == [1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1]
    assert drawn[both]["hovertext"][1].endswith(
        f"position 2: {bias.examination[1]:.3f}<br>{low[1]:.3f} to {high[1]:.3f}"
    )
    assert drawn[example.ODD]["y"] == [1, 0.6, 0.3]
    assert page.locator("#clicks .key li").all_text_contents() == [both, example.ODD]
    label = page.locator("#clicks [role=figure]").get_attribute("aria-label")
    assert label == f"Examination of each position by users; {both}; {example.ODD}"


def test_the_curves_stand_in_a_table_beside_the_chart(page, bias):
    table = opened_table(page, "Table: examination")
    curve, (low, high) = bias.examination, bias.interval
    odd = ["1.000", "0.600", "0.300", DASH, DASH, DASH]
    assert rows_of(table) == [
        [str(k + 1), f"{curve[k]:.3f}{low[k]:.3f} to {high[k]:.3f}", odd[k]] for k in range(6)
    ]
    close_tables(page)


def test_the_errors_of_the_clips_stand_in_a_table(page, rankers):
    clicks = rankers["robust"].clicks_
    errors = np.array(clicks["clip_choice"]["errors"])
    rows = rows_of(opened_table(page, "Table: errors"))
    assert [float(row[0]) for row in rows] == clicks["clip_choice"]["clips"]
    found = np.array([[float(text.replace("\N{MINUS SIGN}", "-")) for text in row[1:3]] for row in rows])
    spread = clicks["clip_choice"]["standard_errors"]
    np.testing.assert_allclose(found, np.stack([errors - errors.min(), spread], axis=1), rtol=5e-3)
    assert [row[0] for row in rows if row[3] == "chosen"] == [f"{clicks['clip']:g}"]
    close_tables(page)


def test_sentences_say_what_each_method_was_trained_on(page, rankers, log):
    robust, weighted, odd = sentences(page)[:3]
    counts = f"estimated from {log.n_clicks:,} clicks of 3,000 sessions by the method"
    assert robust.startswith(f"{example.OURS} was trained on the relevance of documents, {counts}")
    assert "\N{LEFT DOUBLE QUOTATION MARK}doubly robust\N{RIGHT DOUBLE QUOTATION MARK}." in robust
    assert "a position-based model, estimated from documents that several rankers show" in robust
    clip = rankers["robust"].clicks_["clip"]
    assert f"Of {len(CLIPS)} clips, {clip:g} is the smallest with an estimated squared error" in robust
    assert "Probabilities of examination below 0.05 were raised to 0.05, the clip; this was set" in weighted
    unknown, documents = (rankers["weighted"].clicks_[name] for name in ("documents_unknown", "documents"))
    assert 0 < unknown < documents
    assert f"Training left out {unknown:,} of {documents:,} documents, which no user had seen." in weighted
    assert odd.startswith(f"{example.ODD} was trained on the relevance")
    assert "Position bias" not in odd
    assert f"Of {len(CLIPS)} clips" not in odd
    assert "Training left out" not in odd
    aside = page.locator("#clicks .reading").text_content()
    assert "Examination is the probability that a user looks at a position, relative to the first" in aside
    assert "All others on this page are computed from the labels of the test queries" in aside


def test_a_data_set_without_clicks_says_so(page):
    page.get_by_label("Data set", exact=True).select_option("Older")
    assert page.locator("#clicks .empty").count() == 1
    assert page.locator("#clicks .chart").count() == 0
    page.get_by_label("Data set", exact=True).select_option("Small & <odd>")


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_in_the_way_of_anyone(browser, report, dark):
    with opened(browser, f"{report}#section=clicks", dark=dark) as page:
        page.evaluate("sinkpropReport.drawAll()")
        page.evaluate("document.querySelectorAll('#clicks details').forEach(own => { own.open = true; })")
        page.locator("#clicks details table").nth(1).wait_for()
        assert page.locator("[role=figure]").count() <= page.locator("details").count()
        assert serious_findings(page) == []


def test_a_phone_shows_it_without_scrolling_sideways(browser, report):
    with opened(browser, report, width=390, height=800) as page:
        page.evaluate("sinkpropReport.drawAll()")
        page.evaluate("document.querySelectorAll('details').forEach(own => { own.open = true; })")
        page.locator("#clicks details table").nth(1).wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") == 390


def test_click_rates_have_no_curve(browser, tmp_path, rankers):
    own = models_report({"naive": rankers["naive"]}, TestRecord.TEST)
    with shown(browser, tmp_path, own) as page:
        (text,) = sentences(page)
        assert text.startswith("naive was trained on click rates, from ")
        assert "They have position bias" in text
        assert page.locator("#clicks .chart").count() == page.locator("#clicks details").count() == 0
        aside = page.locator("#clicks .reading").text_content()
        assert aside.endswith(
            "All metrics on this page are computed from the labels of the test queries, not from clicks."
        )
        assert serious_findings(page) == []


def test_a_model_of_clicks_that_depend_on_others_says_that_its_curve_is_an_average(browser, tmp_path, log):
    ranker = RegressionRanker().fit(debias(log, DependentClickModel.fit(log), clip=0.0))
    with shown(browser, tmp_path, models_report({"m": ranker}, TestRecord.TEST)) as page:
        (text,) = sentences(page)
        assert "Position bias is that of a dependent click model. In it, examination depends on" in text
        assert "Probabilities of examination were not clipped; this was set by hand." in text
        assert set(traces(page)) == {"m"}


def test_wide_bands_leave_the_chart_and_unknown_bounds_are_left_out(browser, tmp_path, data):
    own = json.loads(json.dumps(data))
    clicks = own["datasets"][0]["clicks"][example.OURS]["Fold1"]
    clicks["examination"] = [1.0, 0.5, 0.2]
    clicks["interval"] = [[1.0, 0.3, 0.0], [1.0, 50.0, None]]
    clicks["click_model"], clicks["bias_method"] = "MyModel", "mine"
    with shown(browser, tmp_path, own) as page:
        band = traces(page)[f"{example.OURS}, band"]
        assert (band["x"], band["y"]) == ([1, 2, 2, 1], [1.0, 0.3, 50.0, 1.0])
        assert page.eval_on_selector("#clicks .chart", "node => node.layout.yaxis.range") == [0, 2.1]
        assert "Position bias is that of MyModel, estimated by the method mine." in sentences(page)[0]
        rows = rows_of(opened_table(page, "Table: examination"))
        assert [row[1] for row in rows[:3]] == ["1.0001.000 to 1.000", "0.5000.300 to 50.000", f"0.200{DASH}"]


def test_pages_without_clicks_do_not_have_the_section(browser, tmp_path):
    with shown(browser, tmp_path, example.data()) as page:
        assert page.locator("#clicks").count() == 0
        assert "Clicks" not in page.locator("nav .links a").all_text_contents()
