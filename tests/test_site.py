"""The built documentation in a browser: its search finds the guides, and axe-core finds no serious fault.

It is skipped where the site has not been built: python docs/build.py. SINKPROP_SITE is the folder of a site
built elsewhere.
"""

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import chromium, opened, serious_findings
from places import ROOT

SITE = Path(os.environ.get("SINKPROP_SITE", ROOT / "docs/_build/html"))
pytestmark = pytest.mark.skipif(
    not (SITE / "searchindex.js").exists(), reason="the site is not built: python docs/build.py"
)

# words that people search for: the pages of which one must be among the first two results
SEARCHES = {
    "install": {"start"},
    "pandas": {"data", "start"},
    "uncertainty": {"tutorials/uncertainty"},
    "feature importance": {"feature-importance"},
    "position bias": {"position-bias"},
    "LambdaMART": {"boosting", "tree_libraries", "baselines", "tutorials/from-lightgbm"},
    "GPU": {"torch", "neural"},
    "latency": {"export"},
    "own metric": {"tutorials/own-metric"},
    "larger than memory": {"convert"},
    "confidence": {"tutorials/uncertainty", "compare", "report"},
    "hyperparameters": {"selection", "training", "boosting", "tutorials/grid-search"},
    "baseline": {"baselines"},
    "learning rate": {"boosting", "neural"},
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


def address(page):
    return (SITE / f"{page}.html").as_uri()


def on_site(browser, url, **options):
    return opened(browser, url, within=SITE.as_uri(), ready="#pst-skip-link", **options)


@pytest.mark.parametrize("words", SEARCHES)
def test_search_finds_the_guide(browser, words):
    # Sphinx fetches every hit for an excerpt, which a browser refuses for files: that is no fault of the page
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{address('search')}?q={quote(words)}")
    page.wait_for_function("document.querySelectorAll('#search-results ul.search li a').length > 1")
    page.wait_for_timeout(300)
    links = page.eval_on_selector_all(
        "#search-results ul.search li > a", "all => all.map(a => a.getAttribute('href'))"
    )
    context.close()
    hits = list(
        dict.fromkeys(link.partition("?")[0].partition("#")[0].removesuffix(".html") for link in links)
    )
    assert SEARCHES[words] & set(hits[:2]), hits[:5]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", ["index", "training", "api/objective"])
def test_axe_finds_nothing_serious(browser, page, width, dark):
    with on_site(browser, address(page), width=width, dark=dark) as shown:
        assert serious_findings(shown) == []
        assert shown.evaluate("document.documentElement.scrollWidth") <= width  # nothing to scroll sideways


def test_the_home_page_shows_a_result_and_a_picture_at_once(browser):
    with on_site(browser, address("index"), height=800) as shown:
        picture = shown.locator(".bd-article img").first.bounding_box()
        assert picture["y"] + picture["height"] < 800
        assert "NDCG@10" in shown.locator(".bd-article").inner_text()
        assert shown.locator("link[rel=icon]").count() == 1
