"""Explanations of rankings in a report: what Python puts into it, and what a real browser shows of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from browser import chromium, opened, serious_findings

from sinkprop import Queries, SinkPropRanker
from sinkprop.baselines import RegressionRanker
from sinkprop.explain import explain_ranking
from sinkprop.objective.relaxations import SmoothedIndicator
from sinkprop.report import models_report, write_report

NAMES = ("title <b>", "body", "links", "age", "length", "noise")


def queries(seed, n_queries=12, n=12):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_queries * n, len(NAMES)))
    y = np.digitize(X @ [1.5, 1.0, 0.5, -0.5, 0, 0] + rng.normal(size=len(X)), [1, 3])
    return Queries(X, y, np.repeat(np.arange(n_queries), n), feature_names=NAMES)


TEST = queries(2)


@pytest.fixture(scope="module")
def models():
    class Foreign:
        """An estimator of another library."""

        def predict(self, X):
            return np.asarray(X)[:, 1]

    own = SinkPropRanker(penalty=1e-2, verbose=False).fit(queries(0), eval_set=queries(1, 40))
    plain = RegressionRanker(verbose=False).fit(queries(0))
    assert own.calibration_ is not None
    assert plain.calibration_ is None
    return {"calibrated": own, "plain": plain, "foreign": Foreign()}


@pytest.fixture(scope="module")
def report(models):
    return models_report(models, TEST, name="small")


def unpacked(flat):
    return dict(zip(flat[::2], flat[1::2], strict=True))


def test_the_largest_contributions_of_each_document_are_kept(report, models):
    own = report["datasets"][0]
    explained = own["explanations"]
    assert explained["features"] == list(NAMES)
    assert list(explained["methods"]) == ["calibrated", "plain"]
    found = models["calibrated"].explain(TEST)
    for q in (0, 7):
        record = explained["methods"]["calibrated"][q]
        rows = np.flatnonzero(TEST.qid == q)
        for row, flat in zip(rows, record["documents"], strict=True):
            top = np.argsort(-np.abs(found.ranks[row]))[:5]
            kept = unpacked(flat)
            assert set(kept) <= set(top.tolist())
            for feature in top:
                assert kept.get(feature, 0) == pytest.approx(found.ranks[row, feature], abs=0.0051)
        for feature, gain in unpacked(record["query"]).items():
            assert gain == pytest.approx(found.metric[q, feature], abs=0.000051)
        assert record["expected"] == pytest.approx(found.expected_metric[q], abs=0.000051)
        assert record["random"] == pytest.approx(found.random_metric[q], abs=0.000051)
    json.dumps(report, allow_nan=False)


def test_without_calibration_the_ranks_that_the_page_shows_are_explained(report, models):
    own = report["datasets"][0]
    settings = own["explorer"]["distributions"]["plain"]["test"]
    found = explain_ranking(
        models["plain"].predict(TEST, pred_contrib=True),
        TEST.qid,
        relaxation=SmoothedIndicator(settings["sigma"], settings["kernel"]),
        n_iter=settings["n_iter"],
        epsilon=settings["epsilon"],
    )
    kept = unpacked(own["explanations"]["methods"]["plain"][3]["documents"][5])
    for feature, ranks in kept.items():
        assert ranks == pytest.approx(found.ranks[3 * 12 + 5, feature], abs=0.0051)


def test_long_queries_and_much_work_are_left_out(models, monkeypatch):
    only = {"m": models["calibrated"]}
    monkeypatch.setattr("sinkprop.report.explanations.MAX_DOCUMENTS", 40)
    (own,) = models_report(only, TEST, name="small")["datasets"]
    known = [record is not None for record in own["explanations"]["methods"]["m"]]
    assert [i for i, yes in enumerate(known) if yes] == [0, 6, 11]
    monkeypatch.setattr("sinkprop.report.explanations.LONGEST", 11)
    (own,) = models_report(only, TEST, name="small")["datasets"]
    assert "explanations" not in own


def test_models_without_contributions_make_a_report_without_explanations(models):
    (own,) = models_report({"foreign": models["foreign"]}, TEST, name="small")["datasets"]
    assert "explanations" not in own


@pytest.fixture(scope="module")
def page(report, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(report, path)
    with chromium() as browser, opened(browser, path.as_uri(), width=1100) as page:
        yield page


def go(page, **words):
    page.mouse.move(0, 0)
    page.evaluate(
        """words => new Promise(done => {
          history.replaceState(null, '', '#');
          addEventListener('hashchange', () => requestAnimationFrame(() => requestAnimationFrame(done)),
            { once: true });
          location.hash = new URLSearchParams(words);
        })""",
        {key: str(value) for key, value in words.items()},
    )


def rows(page, place):
    return page.locator(f".why >> nth={place // 2} >> table >> nth={place % 2}").evaluate(
        "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )


def test_the_page_says_why_a_document_is_at_its_rank(page, report):
    own = report["datasets"][0]["explanations"]["methods"]
    for query, document in ((4, 2), (9, 7)):
        go(page, query=query, document=document + 1, a="calibrated", b="plain")
        assert page.locator("#explorer h3", has_text="Why is").text_content() == (
            f"Why is document {document + 1} at its rank?"
        )
        for place, method in ((0, "calibrated"), (2, "plain")):
            record = own[method][query]
            flat = [
                (NAMES[f], ranks)
                for f, ranks in unpacked(record["documents"][document]).items()
                if abs(ranks) >= 0.05
            ]
            shown = rows(page, place)
            assert [row[0] for row in shown] == [name for name, _ in flat]
            for row, (_, ranks) in zip(shown, flat, strict=True):
                assert float(row[1].split()[0]) == pytest.approx(abs(ranks), abs=0.051)
                assert row[1].split()[-1] == ("up" if ranks < 0 else "down")
            gains = [(NAMES[f], gain) for f, gain in unpacked(record["query"]).items()]
            assert [row[0] for row in rows(page, place + 1)] == [name for name, _ in gains]
        words = page.locator(".why").first.text_content()
        assert "A random order gives rank 6.5, the model expects rank " in words
        assert f"Expected NDCG@10 of this query: {own['calibrated'][query]['expected']:.4f}" in words


def test_a_method_without_explanation_says_so(page):
    go(page, query=0, document=1, a="calibrated", b="foreign")
    assert "does not explain this ranking" in page.locator(".why").nth(1).text_content()


def test_names_of_features_stay_text_and_everyone_can_read_it(page):
    go(page, query=4, document=2)
    assert page.locator(".why b").count() == 0
    assert serious_findings(page) == []
    page.set_viewport_size({"width": 390, "height": 800})
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    page.set_viewport_size({"width": 1100, "height": 900})
