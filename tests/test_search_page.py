"""The search page of examples/search_page: in JavaScript it finds, computes and shows what Python does."""

import importlib.util
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from browser import chromium, opened, serious_findings, served
from javascript import packages, web_runtime
from places import ROOT

EXAMPLE = ROOT / "examples" / "search_page"
QUERIES = ["read a file line by line", "sort a list by a key", "HTTPServer for IPv4 addresses", "heapq"]
AWKWARD = [
    "",
    "   ",
    "qqqq zzzz",
    "the of",
    "naïve Straße x٣",
    "sort sort SORTING sorted",
    "a" * 3000,
    "<b>&quot;",
]


SEARCH = """async ({ texts, queries }) => {
    const { Collection, tokens } = await import("./search.mjs");
    const index = await (await fetch("index.json")).json();
    const collection = new Collection(index);
    const found = queries.map((text) => {
        const words = collection.words(text), candidates = collection.candidates(words);
        const features = Array.from(collection.features(candidates, words));
        return { words: words.map((t) => index.vocabulary[t]), candidates, features };
    });
    return { tokens: texts.map((text) => tokens(text, collection.stopWords)), queries: found };
}"""


@pytest.fixture(scope="module")
def example():
    pytest.importorskip("onnx", reason="exports to ONNX need onnx")
    spec = importlib.util.spec_from_file_location("search_page_build", EXAMPLE / "build.py")
    sys.modules[spec.name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name], sys.modules[module.TOOL.__name__]


@pytest.fixture(scope="module")
def browser():
    with chromium() as launched:
        yield launched


@pytest.fixture(scope="module")
def built(example, tmp_path_factory):
    """The page, and what it was made from."""
    folder = tmp_path_factory.mktemp("page")
    documents, parts, ranker = example.build(folder, packages())
    return SimpleNamespace(folder=folder, documents=documents, parts=parts, ranker=ranker)


def expected(example, built, text):
    """Candidates, features, scores and probabilities of a query, in Python."""
    words = built.documents.words(text)
    candidates = example.candidates(built.documents, words)
    X = example.features(built.documents, candidates, words)
    query, ranker = {"qid": np.zeros(len(X))}, built.ranker
    return SimpleNamespace(
        words=words,
        candidates=candidates,
        X=X,
        scores=ranker.predict(X),
        helps=ranker.predict_proba(X, **query),
        answers=ranker.predict_proba(X, threshold=2, **query),
        confidence=ranker.confidence(X, **query),
    )


def assert_search(example, built, page):
    """Words, candidates and features are those of Python, for all names, summaries and test queries."""
    names = [document.docid for document in built.documents.documents]
    texts = [*names, *(document.line for document in built.documents.documents), *AWKWARD]
    test = built.parts[4]
    queries = [*(query.text for query, _ in test.queries), *QUERIES, *AWKWARD]
    found = page.evaluate(SEARCH, {"texts": texts, "queries": queries})
    assert found["tokens"] == [example.TOOL.tokens(text) for text in texts]
    n_documents = []
    for q, (text, own) in enumerate(zip(queries, found["queries"], strict=True)):
        if q < len(test.queries):  # the rows that the model was tested on
            candidates, X = test.candidates[q], test.rows.X[test.rows.qid == q]
        else:
            words = built.documents.words(text)
            assert own["words"] == words
            candidates = example.candidates(built.documents, words)
            X = example.features(built.documents, candidates, words)
        assert own["candidates"] == candidates, text
        np.testing.assert_allclose(own["features"], np.ravel(X), rtol=0, atol=1e-12, err_msg=text)
        n_documents.append(len(candidates))
    assert 0 in n_documents
    assert max(n_documents) == example.N_CANDIDATES


def search(page, text):
    return page.evaluate("async (text) => (await import('./page.mjs')).search(text)", text)


def typed(page, text):
    """Type a query, letter by letter, and wait until its result is shown."""
    page.locator("#query").fill("")
    page.locator("#query").press_sequentially(text)
    page.wait_for_function("text => document.documentElement.dataset.shown === text", arg=text)


def percent(p):
    return "<1%" if p < 0.005 else ">99%" if p >= 0.995 else f"{int(100 * p + 0.5)}%"


def assert_result(example, built, result):
    """The order and the probabilities of a query are those of the ranker."""
    own = expected(example, built, result["text"])
    assert result["documents"] == own.candidates
    np.testing.assert_allclose(result["features"], own.X.ravel(), rtol=0, atol=1e-12)
    np.testing.assert_allclose(result["scores"], own.scores, rtol=0, atol=1e-9)
    assert result["model"] == np.argsort(-own.scores, kind="stable").tolist()
    for name in ("helps", "answers", "confidence"):
        np.testing.assert_allclose(result[name], getattr(own, name), rtol=0, atol=1e-6)
    by_bm25 = built.documents.ranking(example.TOOL.bm25, "whole", own.words)
    assert [own.candidates[i] for i in result["bm25"]] == [d for d in by_bm25 if d in set(own.candidates)]


def assert_shown(built, page, result):
    """What stands on the page is the result."""
    names = [document.docid for document in built.documents.documents]
    first = [(i, names[result["documents"][i]]) for i in result["model"][:10]]
    assert page.locator("#results .name").all_inner_texts() == [name for _, name in first]
    assert page.locator("#results .percent strong").all_inner_texts() == [
        percent(result["helps"][i]) for i, _ in first
    ]
    shares = page.locator("#results .track .helps").evaluate_all(
        "all => all.map((e) => e.getBoundingClientRect().width / e.parentElement.clientWidth)"
    )
    np.testing.assert_allclose(shares, [result["helps"][i] for i, _ in first], atol=0.01)
    assert page.locator("#sure strong").inner_text() == percent(result["confidence"])
    assert page.locator("#bm25 .name").all_inner_texts() == [
        names[result["documents"][i]] for i in result["bm25"][:10]
    ]
    assert f"{len(result['documents'])} candidates of {len(names):,} documents" in page.inner_text("#status")


@pytest.mark.slow
def test_the_page_finds_and_ranks_what_python_does(browser, example, built):
    test = built.parts[4]
    texts = [query.text for query, _ in test.queries]
    quality = json.loads((built.folder / "index.json").read_text(encoding="utf-8"))["quality"]
    with served(built.folder) as address:
        # `opened` fails if the page asks for anything from elsewhere; WebAssembly takes seconds to compile
        options = {"within": f"{address}/", "seconds": 60}
        with opened(browser, f"{address}/index.html", **options) as page:
            assert_search(example, built, page)
            for text in [*QUERIES, *texts[:3]]:
                result = search(page, text)
                assert_result(example, built, result)
            typed(page, QUERIES[0])
            assert_shown(built, page, search(page, QUERIES[0]))
            assert "A test query" not in page.inner_text("#status")

            page.locator("#more").click()
            page.wait_for_function("document.querySelectorAll('#results > li').length === 20")

            ndcg = "async (text) => (await (await import('./page.mjs')).search(text)).ndcg"
            both = np.mean([page.evaluate(ndcg, text) for text in texts], axis=0)
            np.testing.assert_allclose(both, [quality["model"], quality["bm25"]], rtol=0, atol=1e-12)

            page.locator("#tries button").first.click()
            chosen = page.input_value("#query")
            assert chosen in texts
            page.wait_for_function("text => document.documentElement.dataset.shown === text", arg=chosen)
            own = search(page, chosen)
            assert_shown(built, page, own)
            assert "A test query: NDCG@10 is" in page.inner_text("#status")
            (labels,) = (graded for query, graded in test.queries if query.text == chosen)
            top = [own["documents"][i] for i in own["model"][:10]]
            badges = [f"labeled: {('helps', 'answers')[labels[d] - 1]}" for d in top if d in labels]
            assert page.locator("#results .label").all_inner_texts() == badges

            for text, message in (
                ("zzzz qqqq", "No document has any of these words."),
                ("", "Type what you"),
            ):
                page.locator("#query").fill(text)
                page.wait_for_function("text => document.documentElement.dataset.shown === text", arg=text)
                assert message in page.inner_text("#status")
                assert page.locator("main").is_hidden()

        for width, dark in ((1280, False), (390, True)):
            link = f"{address}/index.html#q=symbolic+links"
            with opened(browser, link, width=width, dark=dark, **options) as page:
                assert page.input_value("#query") == "symbolic links"
                assert serious_findings(page) == []
                assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_missing_model_is_explained_on_the_page(browser, tmp_path):
    web_runtime(tmp_path / "ort")
    for name in ("index.html", "style.css", "page.mjs", "search.mjs"):
        (tmp_path / name).write_bytes((EXAMPLE / name).read_bytes())
    (tmp_path / "index.json").write_text("{}")
    with served(tmp_path) as address:
        page = browser.new_page()
        page.goto(f"{address}/index.html")
        page.wait_for_selector("#status.failed")
        assert "model.onnx: 404" in page.inner_text("#status")
        page.close()


def test_missing_packages_are_named_before_anything_is_written(example, tmp_path):
    with pytest.raises(
        SystemExit, match=r"must have onnxruntime-web; not found: ort\.wasm\.min\.mjs.*npm ci"
    ):
        example.main([str(tmp_path / "page"), "--packages", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []
