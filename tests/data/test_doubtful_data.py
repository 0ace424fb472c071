"""Warnings of columns that are no features and of equal labels, which show the caller's line."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sinkprop import Queries, SinkPropRanker, load_frame, load_parquet, load_queries
from sinkprop.data.doubtful_data import doubtful_names

FEATURES = [
    "bm25", "click_rate", "historical_clicks", "avg_position", "page_rank", "title_length", "price", "f1",
    "days_since_update", "valid", "grid", "rankine", "idf", "0", "update", "order", 7,
]  # fmt: skip
OTHERS = {
    "position": "a position", "Rank": "a position", "clicked": "an outcome", "Clicks": "an outcome",
    "is_clicked": "an outcome", "wasPurchased": "an outcome", "label": "an outcome", "grade": "an outcome",
    "docid": "an id", "doc_id": "an id", "sessionId": "an id", "USER_ID": "an id", "Unnamed: 0": "an id",
    "date": "a date", "query_date": "a date", "timestamp": "a date",
}  # fmt: skip


def test_names_of_features_and_of_other_things() -> None:
    assert doubtful_names(FEATURES) == {}
    assert doubtful_names([*FEATURES, *OTHERS]) == OTHERS


def frame(**more: object) -> pd.DataFrame:
    return pd.DataFrame({"qid": [1, 1, 2], "label": [0, 1, 2], "bm25": [0.5, 1, 2], **more})


def test_loaders_warn_of_columns_unless_features_are_named(tmp_path: Path) -> None:
    doubtful = frame(position=[1, 2, 1], clicked=[0, 1, 0])
    path, csv = tmp_path / "a.parquet", tmp_path / "a.csv"
    doubtful.to_parquet(path)
    doubtful.to_csv(csv, index=False)
    from sinkprop.store import convert

    calls = {
        "frame": lambda **options: load_frame(doubtful, **options),
        "parquet": lambda **options: load_parquet(path, **options),
        "queries": lambda **options: load_queries(path, **options),
        "convert": lambda **options: convert(path, tmp_path / "p.queries", overwrite=True, **options),
        "convert CSV": lambda **options: convert(csv, tmp_path / "c.queries", overwrite=True, **options),
    }
    for call in calls.values():
        with pytest.warns(
            UserWarning,
            match=r"of other things: 'position' \(a position\), 'clicked' \(an outcome\)\. To leave them out",
        ) as caught:
            assert call().feature_names == ("bm25", "position", "clicked")
        assert [Path(warning.filename).name for warning in caught] == ["test_doubtful_data.py"]
        assert call(features=["bm25", "clicked"]).n_features == 2  # a warning would be an error here
    assert load_frame(frame()).feature_names == ("bm25",)


X, QID = np.random.default_rng(0).normal(size=(12, 2)), np.arange(12) // 4
EQUAL = r"^fit: all labels of X are {}, so nothing can be learned from them\."


@pytest.mark.parametrize("label", [0, 2.5])
def test_a_fit_to_equal_labels_warns(label: float, tmp_path: Path) -> None:
    from sinkprop.store import save_queries

    queries = Queries(X, np.full(12, label), QID)
    stored = save_queries(tmp_path / "a.queries", queries)
    for arguments in ((queries,), (stored,), (X, queries.y)):
        with pytest.warns(UserWarning, match=EQUAL.format(label)) as caught:
            SinkPropRanker(max_iter=1).fit(*arguments, qid=QID if len(arguments) == 2 else None)
        found = [warning for warning in caught if "all labels" in str(warning.message)]
        assert [Path(warning.filename).name for warning in found] == ["test_doubtful_data.py"]


def test_stored_sets_of_trees_and_networks_with_equal_labels_warn(tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    pytest.importorskip("torch")
    from sinkprop.gbdt import BoostedRanker
    from sinkprop.store import save_queries
    from sinkprop.torch import NeuralRanker

    stored = save_queries(tmp_path / "a.queries", Queries(X, np.zeros(12), QID))
    for ranker in (BoostedRanker(n_estimators=1), NeuralRanker(max_epochs=1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ranker.fit(stored)
        assert sum("all labels of X are 0" in str(warning.message) for warning in caught) == 1


def test_equal_labels_of_an_evaluation_set_warn_and_those_of_a_query_do_not() -> None:
    y = np.repeat([0, 1, 2], 4)
    SinkPropRanker(max_iter=1).fit(X, y, qid=QID)  # a warning would be an error here
    with pytest.warns(UserWarning, match=r"all labels of eval_set X are 0, so no model is better than"):
        SinkPropRanker(max_iter=1).fit(X, np.arange(12) % 3, qid=QID, eval_set=Queries(X, np.zeros(12), QID))
