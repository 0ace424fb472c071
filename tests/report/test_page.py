"""The page of a report: what Python makes, and what a real browser shows of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import report_example as example
from browser import chromium, opened, serious_findings

import sinkprop
from sinkprop.calibration import RankCalibration
from sinkprop.calibration.widths import RankMixture
from sinkprop.report import report_html, write_report

DOCUMENTS = "[...document.querySelectorAll('#explorer {}')].map(row => +row.dataset.document)"
PLACES = DOCUMENTS.format(".side:nth-child({}) tbody tr")
MINUS = "\N{MINUS SIGN}"


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def data():
    return example.data()


@pytest.fixture(scope="module")
def report(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    write_report(data, path)
    return path.as_uri()


@pytest.fixture(scope="module")
def page(browser, report):
    """One page for the tests that leave it as it was, or that say what they need by its address."""
    with opened(browser, report) as page:
        yield page


def go(page, **words):
    """The page at another address; what it does not name is as at the beginning.

    The mouse goes to a corner: rows that scroll under a mouse at rest would be chosen.
    """
    page.mouse.move(0, 0)
    page.evaluate(
        """words => new Promise(done => {
          history.replaceState(null, '', '#');
          addEventListener('hashchange', () => requestAnimationFrame(done), { once: true });
          location.hash = new URLSearchParams(words);
        })""",
        {key: str(value) for key, value in words.items()},
    )


def number(text):
    return float(text.replace(MINUS, "-"))


def cells(page, selector):
    """The texts of a table's rows, once it is there: a table beside a chart is made when it is opened."""
    return page.locator(selector).first.evaluate(
        "table => [...table.tBodies[0].rows].map(row => [...row.cells].map(cell => cell.textContent))"
    )


class Elements(HTMLParser):
    """The tags of a page, and the text of its title and its data."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.texts = [], None, {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open = dict(attrs).get("id", tag)
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        self.open = None

    def handle_data(self, data):
        self.texts[self.open] = self.texts.get(self.open, "") + data


def test_the_data_and_the_title_come_back_from_the_page_as_they_were(data):
    found = Elements(report_html(data))
    assert json.loads(found.texts["report-data"]) == json.loads(json.dumps(data))
    assert found.texts["title"] == example.TITLE
    assert sum(tag == "script" for tag, _ in found.tags) == 3  # data, plotly, the page's own


@pytest.mark.parametrize(
    "text", ["</script><b>", "<!--<script>", "\u2028\u2029", "{{css}}", "\\u003c", "]]>&amp;"]
)
def test_no_text_leaves_its_place(text):
    data = {"format": "sinkprop-report", "version": 1, "title": text, "datasets": [], "command": text}
    found = Elements(report_html(data))
    assert json.loads(found.texts["report-data"]) == data
    assert found.texts["title"] == text
    assert not set("<>&\u2028\u2029") & set(found.texts["report-data"])


def test_nothing_in_the_page_names_another_address(data):
    found = Elements(report_html(data))
    assert not [tag for tag, own in found.tags if "src" in own]
    assert [own["href"][:5] for _, own in found.tags if "href" in own] == ["data:", "#open"]
    policy = next(
        own["content"] for _, own in found.tags if own.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in policy
    assert "script-src 'unsafe-inline'" not in policy


def test_a_report_is_written_whole(tmp_path, data):
    path = tmp_path / "report.html"
    write_report(data, path)
    assert path.read_text(encoding="utf-8") == report_html(data)
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_report({**data, "datasets": [{"x": float("nan")}]}, path)
    assert path.read_text(encoding="utf-8") == report_html(data)
    assert [child.name for child in tmp_path.iterdir()] == ["report.html"]


def test_other_records_are_refused_with_a_reason(data):
    with pytest.raises(ValueError, match=r"got format 'sinkprop-comparison', version 1\. Make it with"):
        report_html({"format": "sinkprop-comparison", "version": 1})
    with pytest.raises(ValueError, match="version 99"):
        report_html({**data, "version": 99})
    with pytest.raises(TypeError, match="Give Python's own numbers"):
        report_html({**data, "title": "x", "datasets": [np.float32(1)]})


def test_plotly_is_the_one_whose_sum_is_recorded():
    import hashlib

    assets = files("sinkprop.report").joinpath("assets")
    record = json.loads(assets.joinpath("plotly.json").read_text(encoding="utf-8"))
    bundle = assets.joinpath("plotly-cartesian.min.js").read_bytes()
    assert hashlib.sha256(bundle).hexdigest() == record["sha256"]
    assert f"v{record['version']}".encode() in bundle[:100]
    assert b"MIT" in assets.joinpath("plotly-LICENSE").read_bytes()


def test_it_opens_with_every_section_and_chart(page):
    page.evaluate("sinkpropReport.drawAll()")
    assert page.title() == example.TITLE
    assert page.locator("h1").text_content() == example.TITLE
    names = [
        "opening",
        "glance",
        "curves",
        "scores",
        "training",
        "queries",
        "weights",
        "calibration",
        "explorer",
        "glossary",
    ]
    assert page.eval_on_selector_all("section", "all => all.map(own => own.id)") == names
    figures = page.locator("[role=figure]")
    assert figures.count() == 11
    assert page.locator("[role=figure] .main-svg").count() >= 11
    assert all(figures.evaluate_all("all => all.map(own => own.getAttribute('aria-label'))"))
    assert page.evaluate("document.querySelectorAll('#page script, #page b, #page i').length") == 0
    assert not re.search(r"\b(undefined|NaN|null|true|false|Infinity)\b", page.locator("main").inner_text())
    assert page.evaluate("performance.getEntriesByName('sinkprop-ready').length") == 1


def test_the_opening_says_who_is_ahead_and_whether_by_chance(page, data):
    own = data["datasets"][0]
    means = {name: own["means"][name]["ndcg@10"] for name in example.METHODS}
    assert max(means, key=means.get) == example.OURS
    test = next(t for t in own["tests"] if t["method"] == example.OURS and t["metric"] == "ndcg@10")
    lead = page.locator("#opening .lead").text_content()
    assert f"{example.OURS} is best on Small & <odd>: its mean NDCG@10 is {means[example.OURS]:.4f}" in lead
    assert f"{means[example.OURS] - means[example.REFERENCE]:.4f} above {example.REFERENCE}" in lead
    assert lead.endswith("The difference is statistically significant (p < .05).")
    assert test["verdict"] == 1
    x, y = (own["per_query"][name]["ndcg@10"] for name in (example.OURS, example.REFERENCE))
    wins, losses = (
        sum(a > b + 1e-9 for a, b in zip(x, y, strict=True)),
        sum(a < b - 1e-9 for a, b in zip(x, y, strict=True)),
    )
    text = page.locator("#opening").text_content()
    assert f"gives the better ranking for {wins}, {example.REFERENCE} for {losses}" in text


def test_the_table_holds_the_means_and_sorts(page, data):
    own = data["datasets"][0]
    table = "#scores table.sortable"
    verdicts = {(t["method"], t["metric"]): t["verdict"] for t in own["tests"]}
    rows = cells(page, table)
    assert [row[0] for row in rows] == list(example.METHODS)
    for row in rows:
        for metric, text in zip(example.METRICS, row[1:], strict=False):
            mark = {1: "▲ better", -1: "▼ worse"}.get(verdicts.get((row[0], metric), 0))
            assert text[:6] == f"{own['means'][row[0]][metric]:.4f}"
            assert (mark in text) if mark else "than" not in text
    best = [max(own["means"][name][metric] for name in example.METHODS) for metric in example.METRICS]
    bold = page.eval_on_selector_all(f"{table} td strong", "all => all.map(own => own.textContent)")
    assert bold == [f"{value:.4f}" for value in best]
    head = page.locator(f"{table} thead button", has_text="NDCG@10")
    for way, order in (("descending", -1), ("ascending", 1)):
        head.click()
        assert head.locator("..").get_attribute("aria-sort") == way
        values = [float(row[4][:6]) for row in cells(page, table)]
        assert values == sorted(values, key=lambda value: order * value)
    page.locator(f"{table} thead button", has_text="method").press("Enter")
    assert [row[0] for row in cells(page, table)] == list(example.METHODS)


def drawn(page, selector):
    """The traces of a chart as plotly has them."""
    page.evaluate("sinkpropReport.drawAll()")
    return page.eval_on_selector(
        selector,
        """node => node.data.map(({ name, x, y, z, customdata, hovertext }) =>
          ({ name, x, y, z, customdata, hovertext }))""",
    )


def test_the_curves_and_bands_are_the_means_and_intervals(page, data):
    own, ks = data["datasets"][0], [1, 3, 5, 10]
    traces = {trace["name"]: trace for trace in drawn(page, "#curves .chart")}
    for name in example.METHODS:
        assert traces[name]["x"] == ks
        assert traces[name]["y"] == [own["means"][name][f"ndcg@{k}"] for k in ks]
        band = [own["intervals"][name][f"ndcg@{k}"] for k in ks]
        text = f"NDCG@5 {own['means'][name]['ndcg@5']:.4f}<br>{band[2][0]:.4f} to {band[2][1]:.4f}"
        assert traces[name]["hovertext"][2].endswith(text)
        assert traces[f"{name}, band"]["y"] == [low for low, _ in band] + [high for _, high in band][::-1]
    assert len(traces) == 6
    box = page.get_by_label("published results of others")
    box.check()
    assert {t["name"]: t["y"] for t in drawn(page, "#curves .chart")}["Other <i>"] == [None, 0.51, None, 0.52]
    box.uncheck()
    button = page.locator("#curves .legend button").first
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert example.OURS not in {t["name"] for t in drawn(page, "#curves .chart")}
    button.click()


def test_the_numbers_of_each_chart_stand_in_a_table_beside_it(page, data):
    own = data["datasets"][0]
    details = page.locator("#curves details").first
    details.locator("summary").click()
    rows = cells(page, "#curves details table")
    for name, *texts in rows:
        for metric, text in zip(example.METRICS[:4], texts, strict=True):
            low, high = own["intervals"][name][metric]
            assert text == f"{own['means'][name][metric]:.4f}{low:.4f} to {high:.4f}"
    details.locator("summary").click()
    page.locator("#scores details").first.locator("summary").click()
    tests = [t for t in own["tests"] if t["metric"] == "ndcg@10"]
    found = cells(page, "#scores details table")
    assert [(row[0], number(row[1])) for row in found] == [
        (t["method"], round(t["difference"], 4)) for t in tests
    ]
    page.locator("#scores details").first.locator("summary").click()
    assert page.locator("[role=figure]").count() <= page.locator("details").count()


def test_differences_weights_and_training_are_drawn_as_recorded(page, data):
    own = data["datasets"][0]
    points = {trace["name"]: trace["x"] for trace in drawn(page, "#scores .chart")}
    assert points == {t["method"]: [t["difference"]] for t in own["tests"] if t["metric"] == "ndcg@10"}
    traces = {trace["name"]: trace["x"] for trace in drawn(page, "#weights .chart")}
    assert traces["mean"] == pytest.approx([0.05, -0.5, 1.35])  # the largest stands at the top
    assert traces["Fold2"] == [0.1, -0.6, 1.2]
    page.locator("#weights select").select_option(example.ODD)
    traces = {trace["name"]: trace["x"] for trace in drawn(page, "#weights .chart")}
    assert traces["Fold1"] == [None, 0.3, 0.7]
    steps = own["training"][example.OURS]["Fold1"]["steps"][6:]
    lines = {trace["name"]: trace["y"] for trace in drawn(page, "#training .chart")}
    assert lines["sigma"] == [step["sigma"] for step in steps]
    assert lines["on validation queries"] == [step["validation"] for step in steps]
    assert lines["on training queries"] == [step["training"] for step in steps]
    marks = "node => node.layout.annotations.map(a => [a.text, a.x])"
    assert page.eval_on_selector("#training .chart", marks) == [["chosen", 2], ["stopped early", 4]]
    page.locator("#training select").nth(2).select_option("penalty 0.1")
    page.evaluate("sinkpropReport.drawAll()")
    assert page.eval_on_selector("#training .chart", marks) == [["stopped early", 4]]
    page.locator("#training select").nth(1).select_option("Fold2")


def event_of(data, method, event):
    record = data["datasets"][0]["calibration"][method]["Fold1"]
    return record, next(own for own in record["events"] if own["event"] == event)


def test_the_calibration_is_drawn_and_said_in_words(page, data):
    choices = page.locator("#calibration select")
    for method, event, words in (
        (example.OURS, "first is best", "the first document has the best label of its query"),
        (example.REFERENCE, "top 3", "a document belongs among the first 3"),
        (example.REFERENCE, "label >= 2", "a document has a label of at least 2"),
    ):
        choices.nth(0).select_option(method)
        choices.nth(1).select_option(event)
        record, own = event_of(data, method, event)
        traces = {trace["name"]: trace for trace in drawn(page, "#calibration .chart")}
        for when in ("before", "after"):
            bins = own[when]
            assert (when in traces) == (bins is not None)
            if bins is None:
                continue
            for axis, values in (("x", bins["forecast"]), ("y", bins["observed"])):
                assert traces[when][axis] == [value for value in values if value is not None]
            assert traces[f"{when}, counts"]["y"] == bins["counts"]
        said = page.locator("#calibration .prose").text_content()
        assert said.startswith(f"{method} is calibrated on 60 queries. On the 14 test queries, ")
        assert f"that {words} are {100 * own['after']['error']:.1f} percentage points away" in said
        assert ("before calibration" in said) == (own["before"] is not None)
        rows = {row[0]: row[1:] for row in cells(page, "#calibration .scroll table")}
        dash = "\N{EN DASH}"
        errors = [dash if bins is None else f"{bins['error']:.4f}" for bins in (own["before"], own["after"])]
        assert rows[words] == errors
        note = page.locator("#calibration .note").text_content()
        assert f"{record['log_scores']['after']:.3f} calibrated" in note
        assert f"{record['log_scores']['uniform']:.3f} if every rank" in note


def test_the_bins_stand_in_a_table(page, data):
    choices = page.locator("#calibration select")
    choices.nth(0).select_option(example.OURS)
    choices.nth(1).select_option("top 5")
    page.locator("#calibration details summary").click()
    _, own = event_of(data, example.OURS, "top 5")
    expected = [
        [when, f"{own[when]['forecast'][b]:.3f}", f"{own[when]['observed'][b]:.3f}", str(m)]
        for when in ("before", "after")
        for b, m in enumerate(own[when]["counts"])
        if m
    ]
    rows = cells(page, "#calibration details table")
    assert [[*row[:3], row[4]] for row in rows] == expected
    page.locator("#calibration details summary").click()


@pytest.mark.parametrize("q", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("method", [example.OURS, example.REFERENCE])
def test_calibrated_pi_in_the_page_is_the_librarys(page, data, q, method):
    scores = data["datasets"][0]["explorer"]["queries"][q]["scores"][method]
    found = page.evaluate(
        """([scores, mixture]) => {
          const own = sinkpropReport.calibratedDistribution(scores, mixture);
          return own.order.map((_, i) => [...own.row(i)]);
        }""",
        [scores, example.calibrated(method)["mixture"]],
    )
    expected = example.calibration(method).rank_distribution(scores)[example.order(scores)]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("warp", [["exponential", 0.2], ["exponential", -0.4], ["softplus", -0.75]])
def test_every_warp_and_length_is_the_librarys(page, warp):
    mixture = example.calibrated(example.OURS)["mixture"]
    n = len(mixture["widths"])
    mixture |= {
        "warp": warp,
        "lengths": [5.0, 40.0],
        "weights": [[1 / (n + 1)] * (n + 1), [0.5] + [0.5 / n] * n],
    }
    scores = np.random.default_rng(0).normal(size=17).round(1).tolist()
    found = page.evaluate(
        """([scores, mixture]) => {
          const own = sinkpropReport.calibratedDistribution(scores, mixture);
          return own.order.map((_, i) => [...own.row(i)]);
        }""",
        [scores, mixture],
    )
    as_arrays = {key: np.array(mixture[key]) for key in ("widths", "weights", "lengths")}
    own = RankMixture.from_record(mixture | as_arrays)
    Pi = RankCalibration(own).rank_distribution(scores)
    np.testing.assert_allclose(found, Pi[example.order(scores)], rtol=0, atol=1e-5)


def test_the_explorer_says_what_is_calibrated_and_what_is_not(browser, tmp_path, data):
    own = json.loads(json.dumps(data))
    explored = own["datasets"][0]["explorer"]
    explored["distributions"][example.OURS] = dict.fromkeys(example.FOLDS, example.calibrated(example.OURS))
    path = tmp_path / "calibrated.html"
    write_report(own, path)
    with opened(browser, f"{path.as_uri()}#a=sinkprop&b=regression&query=104&section=explorer") as page:
        scores = explored["queries"][4]["scores"][example.OURS]
        expected = example.calibration(example.OURS).rank_distribution(scores)[example.order(scores)]
        np.testing.assert_allclose(matrix_shown(page, 1), expected, rtol=0, atol=1e-5)
        words = page.locator("#explorer .controls .note")
        assert "sinkprop is calibrated on 60 queries. Seven in ten." in words.text_content()
        assert "regression is not calibrated: sigma 0.25, Laplace kernel." in words.text_content()
        slider = page.locator("#explorer input[type=range]")
        assert slider.is_enabled()  # for the other method
        slider.focus()
        slider.press("ArrowLeft")
        page.wait_for_url(re.compile("width=-0.25"))
        np.testing.assert_allclose(matrix_shown(page, 1), expected, rtol=0, atol=1e-5)
        page.get_by_label("Second method").last.select_option(example.ODD)
        assert "is not calibrated; it has its own kind" in words.text_content()
        assert slider.is_disabled()
        assert serious_findings(page) == []


def test_given_scores_are_ranked_without_probabilities(browser, tmp_path):
    from sinkprop.baselines import FeatureRanker
    from sinkprop.report import models_report

    rng = np.random.default_rng(0)
    queries = sinkprop.Queries(rng.normal(size=(40, 2)), rng.integers(0, 3, 40), np.repeat([1, 2, 3, 4], 10))
    given, ranker = queries.X[:, 1], FeatureRanker(1).fit(queries)
    for name, models in (("both", {"given": given, "one": ranker}), ("alone", {"given": given})):
        write_report(models_report(models, queries, metrics="ndcg@5,map"), tmp_path / f"{name}.html")
    with opened(browser, (tmp_path / "both.html").as_uri()) as page:
        go(page, a="given", b="one", query="0")
        sides = [page.evaluate(PLACES.format(n)) for n in (1, 2)]
        assert sides == [np.argsort(-queries.X[:10, j], kind="stable").tolist() for j in (1, 0)]
        likely = page.locator("#explorer .side:nth-child(1) .likely").all_text_contents()
        assert set(likely[-10:]) == {"\N{EN DASH}"}
        assert "given has no rank distribution." in page.locator("#explorer").inner_text()
    with opened(browser, (tmp_path / "alone.html").as_uri()) as page:
        assert page.evaluate(PLACES.format(1)) == sides[0]
        text = page.locator("#explorer").inner_text()
        assert "Rank distributions" not in text
        assert "probability of each rank" not in text
        assert "This report has no rank probabilities." in page.locator("#calibration").inner_text()


def test_wins_and_losses_are_sorted_and_open_the_explorer(page, data):
    own = data["datasets"][0]
    x, y = (own["per_query"][name]["ndcg@10"] for name in (example.OURS, example.REFERENCE))
    both = sorted(((a - b, -q) for q, (a, b) in enumerate(zip(x, y, strict=True))), reverse=True)
    go(page, section="queries", a=example.OURS, b=example.REFERENCE)
    bars = drawn(page, "#queries .chart")[0]
    assert bars["y"] == [difference for difference, _ in both]
    assert bars["customdata"] == [-q for _, q in both]
    page.locator("#queries .keys").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    second = own["queries"][-both[1][1]]
    assert page.locator("#explorer .query-title").text_content().endswith(f"{second['documents']} documents")
    assert page.evaluate("document.activeElement.id") == "explorer-title"
    page.locator("#queries").scroll_into_view_if_needed()
    page.locator("#queries .chart .point").first.hover(force=True)
    page.locator("#queries .chart .nsewdrag").click(position={"x": 12, "y": 40}, force=True)
    first = own["queries"][-both[0][1]]
    page.get_by_role("heading", name=f"Query {first['id']}, {first['documents']} documents").wait_for()
    page.locator("#queries select").first.select_option(example.ODD)  # the other select follows
    assert page.get_by_label("First method").last.input_value() == example.ODD


@pytest.mark.parametrize("q", [0, 1, 2, 5])
def test_pi_in_the_page_is_the_librarys(page, data, q):
    explored = data["datasets"][0]["explorer"]["queries"][q]
    for method, settings in example.SETTINGS.items():
        for width in (0.25, 1.0, 4.0) if len(explored["labels"]) < 20 else (1.0,):
            found = page.evaluate(
                """([scores, settings]) => {
                  const own = sinkpropReport.rankDistribution(scores, settings);
                  return [own.order, own.order.map((_, i) => [...own.row(i)])];
                }""",
                [explored["scores"][method], {**settings, "sigma": settings["sigma"] * width}],
            )
            order = example.order(explored["scores"][method])
            assert found[0] == order
            expected = example.distribution(method, q, width)[order]
            np.testing.assert_allclose(found[1], expected, rtol=0, atol=1e-9)


def test_the_library_and_the_page_agree_beyond_the_kept_matrix(page):
    scores = np.random.default_rng(0).normal(size=2501).round(3).tolist()  # with ties
    settings = {"kernel": "gaussian", "sigma": 0.05, "n_iter": 1.5, "epsilon": 1e-6}
    found = page.evaluate(
        "([scores, settings]) => [...sinkpropReport.rankDistribution(scores, settings).row(7)].slice(0, 50)",
        [scores, settings],
    )
    Pi = sinkprop.doubly_stochastic(scores, relaxation=sinkprop.SmoothedIndicator(0.05), n_iter=1.5)
    np.testing.assert_allclose(found, Pi[example.order(scores)[7], :50], rtol=0, atol=1e-9)


def matrix_shown(page, side):
    page.evaluate("sinkpropReport.drawAll()")
    return page.eval_on_selector(
        f"#explorer .figure:nth-child({side}) [role=figure]:has(.hm)", "node => node.data[0].z"
    )


def test_the_explorer_shows_orders_labels_and_movement(page, data):
    own = data["datasets"][0]
    go(page, section="explorer", query=104, a=example.OURS, b=example.REFERENCE)
    explored = own["explorer"]["queries"][4]
    orders = [example.order(explored["scores"][name]) for name in (example.OURS, example.REFERENCE)]
    for side in (1, 2):
        assert page.evaluate(PLACES.format(side)) == orders[side - 1]
    for i, row in enumerate(cells(page, "#explorer .side:nth-child(1) table")):
        j = orders[0][i]
        moved = orders[1].index(j) - i
        text = "=" if moved == 0 else f"{'↑' if moved > 0 else '↓'}{abs(moved)}"
        assert row[:3] == [str(i + 1), str(explored["labels"][j]), f"document {j + 1}"]
        assert re.match(r"[=↑↓]\d*", row[3])[0] == text
    assert np.allclose(
        matrix_shown(page, 1), example.distribution(example.OURS, 4)[orders[0]], rtol=0, atol=1e-9
    )
    assert np.allclose(
        matrix_shown(page, 2), example.distribution(example.REFERENCE, 4)[orders[1]], rtol=0, atol=1e-9
    )


def test_the_width_slider_sharpens_the_distribution(page, data):
    go(page, section="explorer", query=104, a=example.OURS, b=example.REFERENCE)
    slider = page.locator("#explorer input[type=range]")
    slider.focus()
    for _ in range(8):
        slider.press("ArrowLeft")
    page.wait_for_url(re.compile("width=-2"))
    order = example.order(data["datasets"][0]["explorer"]["queries"][4]["scores"][example.OURS])
    expected = example.distribution(example.OURS, 4, 0.25)[order]
    assert np.allclose(matrix_shown(page, 1), expected, rtol=0, atol=1e-9)
    assert expected.max() > example.distribution(example.OURS, 4).max()


def test_a_stored_matrix_is_shown_as_it_is(page, data):
    go(page, section="explorer", query=104, a=example.ODD, b=example.OURS)
    explored = data["datasets"][0]["explorer"]["queries"][4]
    order, Pi = example.order(explored["scores"][example.ODD]), example.matrix(4)
    assert np.allclose(matrix_shown(page, 1), Pi[order], rtol=0, atol=Pi.max() / 255)


def test_documents_are_found_in_both_lists_by_keyboard_and_mouse(page, data):
    go(page, section="explorer", query=105, a=example.OURS, b=example.REFERENCE)
    explored = data["datasets"][0]["explorer"]["queries"][5]
    ours, theirs = (example.order(explored["scores"][name]) for name in (example.OURS, example.REFERENCE))
    chosen = DOCUMENTS.format("tr[aria-selected=true]")
    focused = """(({ activeElement: row }) =>
      [row.closest('.side') === document.querySelector('.side'), +row.dataset.document])(document)"""
    assert len(page.evaluate(PLACES.format(1))) == 100
    page.locator("#explorer .side tbody tr").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == [True, ours[1]]
    assert page.evaluate(chosen) == [ours[1]] * (2 if theirs.index(ours[1]) < 100 else 1)
    shared = next(j for j in ours if ours.index(j) > 1 and theirs.index(j) < 100)
    for _ in range(ours.index(shared) - 1):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    assert page.evaluate(focused) == [False, shared]
    page.keyboard.press("End")
    assert page.evaluate(focused) == [False, theirs[99]]
    page.keyboard.press("ArrowLeft")
    words = page.locator("#explorer .document").text_content()
    assert words.startswith(f"d5-{theirs[99]}, label {explored['labels'][theirs[99]]}: ")
    assert "regression puts it at rank 100 " in words
    page.evaluate("sinkpropReport.drawAll()")  # a chart drawn later could move the rows under the mouse
    page.evaluate("new Promise(requestAnimationFrame)")
    page.locator("#explorer .side:nth-child(2) tbody tr").nth(98).hover()
    # the mouse and the charts are a frame or more behind
    page.wait_for_function(f"() => {chosen}.includes({theirs[98]})")
    page.wait_for_function(
        """() => {
          const chart = document.querySelector('#explorer .figure:nth-child(2) [role=figure]:has(.hm)');
          const marks = (chart.layout.shapes || []).map(shape => [shape.y0, shape.y1]);
          return JSON.stringify(marks) === '[[98.5,99.5]]';
        }"""
    )
    page.get_by_role("button", name="Show all 130 ranks").click()
    assert page.evaluate(PLACES.format(1)) == ours
    page.get_by_role("button", name="Show the first 100 ranks only").click()


def test_queries_are_searched_and_stepped_through(page):
    go(page, section="explorer", query=104)
    field = page.get_by_label("Search queries")
    field.fill("sort")
    options = page.locator("#explorer .picker select[size] option")
    assert options.all_text_contents() == ["how to <b>sort</b> (106) · 8 of 12 relevant"]
    field.fill("")
    assert options.count() == 13
    page.get_by_role("button", name="Next query").click()
    assert page.locator("#explorer .query-title").text_content() == "Query 105, 130 documents"
    page.locator("#explorer .picker select[size]").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert page.locator("#explorer .query-title").text_content() == 'Query q"<i>, 9 documents'
    page.wait_for_url(re.compile("query=q%22%3Ci%3E"))
    for i, docid in enumerate(["d3-0<b>", "document 2"]):
        row = page.locator(f'#explorer .side:nth-child(1) tr[data-document="{i}"] .name')
        assert row.text_content() == docid


def test_an_address_brings_everything_back(browser, report):
    words = "data=Small+%26+%3Codd%3E&a=regression&b=sinkprop&query=106&document=3&width=1&theme=dark"
    with opened(browser, f"{report}#section=explorer&{words}") as page:
        assert page.get_by_label("First method").last.input_value() == example.REFERENCE
        assert page.locator("#explorer input[type=range]").input_value() == "1"
        assert page.locator('#explorer tr[aria-selected="true"]').first.get_attribute("data-document") == "2"
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.get_by_role("button", name="Light colors").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        page.wait_for_url(re.compile("theme=light"))
        assert set(re.findall(r"[#&](\w+)=", page.url)) >= {
            "section",
            "data",
            "a",
            "b",
            "query",
            "document",
            "width",
            "theme",
        }


def test_a_data_set_from_an_older_file_says_what_it_lacks(page, data):
    go(page, section="opening")
    page.get_by_label("Data set", exact=True).select_option("Older")
    assert "best on Older" in page.locator("#opening .lead").text_content()
    for name in ("glance", "training", "weights", "calibration", "explorer"):
        assert page.locator(f"#{name} .empty").count() == 1
        assert page.locator(f"#{name} .chart").count() == 0
    left_out = [x is None for x in data["datasets"][1]["per_query"][example.OURS]["ndcg@10"]]
    assert len(drawn(page, "#queries .chart")[0]["y"]) == len(left_out) - sum(left_out) == 13


@pytest.mark.parametrize("change", ["one method", "no data sets", "no tests, one level"])
def test_a_report_with_less_is_shown_as_well(browser, tmp_path, data, change):
    less = json.loads(json.dumps(data))
    if change == "one method":
        less["methods"] = less["methods"][:1]
        less["against"] = None
    elif change == "no data sets":
        less["datasets"] = []
    else:
        less["metrics"] = less["metrics"][3:]
        for own in less["datasets"]:
            own["tests"] = []
    path = tmp_path / "less.html"
    write_report(less, path)
    with opened(browser, path.as_uri()) as page:
        page.evaluate("sinkpropReport.drawAll()")
        text = page.locator("main").text_content()
        words = {
            "one method": ["sinkprop reaches a mean NDCG@10 of"],
            "no data sets": ["has no data set"],
            "no tests, one level": [
                "has no significance tests",
                "Curves need NDCG at two or more cutoffs",
            ],
        }
        assert [sentence for sentence in words[change] if sentence not in text] == []
        assert "undefined" not in text
        assert "NaN" not in text


def test_nothing_serious_is_in_the_way_of_anyone(page):
    go(page, query=104, document=3)
    page.evaluate("sinkpropReport.drawAll()")
    tables = [
        page.locator(f"#{section} details summary").first for section in ("scores", "queries", "calibration")
    ]
    for summary in tables:  # all tables beside charts are made by the same function
        summary.click()
    assert serious_findings(page) == []
    light = brightness(page)
    page.get_by_role("button", name="Dark colors").click()
    page.evaluate("sinkpropReport.drawAll()")
    assert light > 700
    assert brightness(page) < 100
    assert serious_findings(page, rule="color-contrast") == []  # the one that colors can break
    page.get_by_role("button", name="Light colors").click()
    for summary in tables:
        summary.click()


def brightness(page):
    return sum(map(int, re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))))


def test_a_phone_shows_it_without_scrolling_sideways(browser, report):
    with opened(browser, report, width=390, height=800, dark=True) as page:
        page.evaluate("sinkpropReport.drawAll()")
        page.evaluate("document.querySelectorAll('details').forEach(own => { own.open = true; })")
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert brightness(page) < 100


def test_printing_draws_every_chart(browser, report, tmp_path):
    with opened(browser, report, dark=True) as page:
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("[role=figure] .main-svg").count() >= 10
        widths = page.eval_on_selector_all("[role=figure]", "all => all.map(own => own._fullLayout.width)")
        assert max(widths) <= 680
        assert page.evaluate("document.documentElement.dataset.theme") == "light"
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        path = Path(tmp_path, "report.pdf")
        page.pdf(path=path)
        assert path.read_bytes().startswith(b"%PDF")
