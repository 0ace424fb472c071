"""The built documentation in a browser: its search finds the guides, and axe-core finds no serious fault.

It is skipped where the site has not been built: python docs/build.py. SINKPROP_SITE is the folder of a site
built elsewhere.
"""

import os
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import chromium, opened, serious_findings, served
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
    "JavaScript": {"browser"},
    "learning rate": {"boosting", "neural"},
}


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def site():
    """The address of a server of the site."""
    with served(SITE) as address:
        yield address


def shown(browser, site, page, **options):
    return opened(browser, f"{site}/{page}.html", within=site, ready="#pst-skip-link", **options)


@pytest.mark.parametrize("words", SEARCHES)
def test_search_finds_the_guide(browser, site, words):
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site}/search.html?q={quote(words)}")
    page.wait_for_selector("#search-results .search-summary >> text=/found/i")
    links = page.eval_on_selector_all(
        "#search-results ul.search li > a", "all => all.map(a => a.getAttribute('href'))"
    )
    context.close()
    hits = list(dict.fromkeys(link.split("?")[0].split("#")[0].removesuffix(".html") for link in links))
    assert SEARCHES[words] & set(hits[:2]), hits[:5]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("page", ["index", "training", "api/objective"])
def test_axe_finds_nothing_serious(browser, site, page, width, dark):
    with shown(browser, site, page, width=width, dark=dark) as page_:
        assert serious_findings(page_) == []
        assert page_.evaluate("document.documentElement.scrollWidth") <= width  # nothing to scroll sideways


def test_the_home_page_shows_a_result_and_a_picture_at_once(browser, site):
    with shown(browser, site, "index", height=800) as page:
        picture = page.locator(".bd-article img").first.bounding_box()
        assert picture["y"] + picture["height"] < 800
        assert "NDCG@10" in page.locator(".bd-article").inner_text()
        assert page.locator("link[rel=icon]").count() == 1
