"""The programs of docs/serving.md: the model, the scorer and the HTTP service, as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from places import ROOT

from sinkprop import datasets, load_model

BLOCKS = re.findall(
    r"^```python\n(.*?)^```$",
    (ROOT / "docs/serving.md").read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder in which the blocks of the page that are not the service have been run."""
    path, before = tmp_path_factory.mktemp("page"), os.getcwd()
    os.chdir(path)
    try:
        for code in BLOCKS:
            if not code.startswith("# service.py\n"):
                exec(compile(code, "docs/serving.md", "exec"), {"__name__": "__main__"})
    finally:
        os.chdir(before)
    return path


@pytest.fixture(scope="module")
def address(folder):
    """Address of the running service."""
    (code,) = (block for block in BLOCKS if block.startswith("# service.py\n"))
    (folder / "service.py").write_text(code, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "service.py", "pydocs.model", "0"], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            port = re.fullmatch(r"listening on port (\d+)\n", server.stdout.readline())[1]
            yield f"http://127.0.0.1:{port}/rank"
        finally:
            server.terminate()


def answer(address, content):
    request = urllib.request.Request(address, json.dumps(content).encode(), method="POST")
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def test_the_service_ranks_queries_on_threads_as_the_ranker_does(folder, address):
    ranker = load_model(folder / "pydocs.model")
    test = datasets.load_pydocs(1).test
    queries = [test.take(test.qid == q) for q in np.unique(test.qid)[:6]]
    rows = [{"documents": query.X.tolist()} for query in queries]
    records = [
        {"documents": [dict(zip(query.feature_names, row, strict=True)) for row in query.X.tolist()]}
        for query in queries
    ]
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda content: answer(address, content), rows + records))
    for query, own in zip(queries * 2, found, strict=True):
        assert own["ranks"] == ranker.rank(query).tolist()
        assert own["relevant"] == ranker.predict_proba(query).tolist()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"documents": [[1.0, 2.0]]}, "X has 2 features, but the model has 50."),
        ({"documents": [{"bm25": 1.0}]}, "document 0: X has no 'name_tf', 'name_idf'"),
        ({"documents": []}, "X must have the shape (N, D)"),
        ({"docs": []}, "documents"),
    ],
)
def test_wrong_requests_get_a_sentence(address, content, says):
    with pytest.raises(urllib.error.HTTPError) as error:
        answer(address, content)
    assert error.value.code == 400
    assert says in json.load(error.value)["error"]
