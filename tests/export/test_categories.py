"""Exports of trees with categorical features: sets of categories in ONNX, thresholds in every format."""

import json

import numpy as np
import pytest
from category_frames import SITES, SIZES, features, frame

from sinkprop.baselines import CatBoostRanker, LightGBMRanker, XGBoostRanker
from sinkprop.data.frames import load_frame
from sinkprop.data.queries import Queries, group_rows
from sinkprop.export import to_onnx
from sinkprop.export.write import export
from sinkprop.gbdt.ranker import BoostedRanker

pd = pytest.importorskip("pandas", reason="pandas is not installed")
onnx = pytest.importorskip("onnx", reason="exports to ONNX need onnx")
onnxruntime = pytest.importorskip("onnxruntime", reason="ONNX is checked by onnxruntime")


def scores_of(model, X):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(["scores"], {"features": X})[0]


def category_rankers():
    """Trees that were trained on the same frame, by each library, and the frame's features."""
    rows = frame(pd)
    quick = {"n_estimators": 8, "num_leaves": 6, "n_threads": 1, "verbose": False}
    rankers = [
        BoostedRanker(**quick, min_child_samples=5),
        LightGBMRanker(**quick, min_child_samples=5),
        XGBoostRanker(**quick, min_child_weight=1.0),
        CatBoostRanker(n_estimators=8, depth=4, learning_rate=0.3, n_threads=1, verbose=False),
    ]
    X = features(rows)
    return [ranker.fit(X, rows["label"], qid=rows["qid"]) for ranker in rankers], rows, X


def test_splits_by_sets_of_categories():
    rankers, rows, X = category_rankers()
    codes = load_frame(rows, allow_nan=True).X
    for ranker in rankers:
        for dtype in ("float64", "float32"):
            model = to_onnx(ranker, dtype=dtype, features=["a", "b", "c"])
            scores = scores_of(model, codes.astype(dtype))
            assert np.abs(scores - ranker.predict(X)).max() < 1e-6
        metadata = {entry.key: entry.value for entry in model.metadata_props}
        assert json.loads(metadata["categories"]) == {"b": list(SITES), "c": list(SIZES)}
        strange = np.array([[1.0, 77, 0], [1.0, np.nan, np.nan], [np.nan, 2, 1]])  # 77 is no code
        unnamed = Queries(strange, np.zeros(3), [1, 1, 1], allow_nan=True)
        assert np.abs(scores_of(to_onnx(ranker), strange) - ranker.predict(unnamed)).max() < 1e-6
        for engine in ("elasticsearch", "solr"):
            with pytest.raises(ValueError, match="the trees split 'site' by sets of categories, but"):
                export(ranker, format=engine, missing="nan")


def test_ordered_categories_are_thresholds_for_every_format():
    rankers, rows, X = category_rankers()
    X = X.drop(columns="site")
    codes = np.column_stack([X["bm25"], X["size"].cat.codes])
    for ranker in rankers:
        ranker.fit(X, rows["label"], qid=rows["qid"])
        groups = group_rows(rows["qid"].to_numpy(), len(rows))
        for engine in ("onnx", "elasticsearch", "solr"):
            options = {} if engine == "onnx" else {"missing": "nan"}
            scores = export(ranker, format=engine, **options).scores(codes, groups)
            away = scores - ranker.predict(X)
            assert np.ptp(away) < 1e-5
