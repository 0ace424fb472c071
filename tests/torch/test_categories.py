"""NeuralRanker refuses categories by the names of their columns."""

import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from sinkprop.data.queries import Queries
from sinkprop.store import save_queries
from sinkprop.torch import NeuralRanker


def test_the_columns_are_named(tmp_path):
    queries = Queries([[0], [1]], [0, 1], [1, 1], feature_names=["site"], categories={"site": ("a", "b")})
    stored = save_queries(tmp_path / "a.queries", queries)
    for data in (queries, stored):
        with pytest.raises(ValueError, match="the feature 'site' holds categories, which NeuralRanker"):
            NeuralRanker(verbose=False).fit(data)
