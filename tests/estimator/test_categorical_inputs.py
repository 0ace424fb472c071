"""Trees on data with missing values and categories, from every source; linear rankers refuse them."""

import warnings

import numpy as np
import pytest
from category_frames import SITES, SIZES, features, frame
from numpy.testing import assert_array_equal

from sinkprop.baselines import CatBoostRanker, LightGBMRanker, RegressionRanker, XGBoostRanker
from sinkprop.data.frames import load_frame, load_parquet
from sinkprop.data.queries import Queries
from sinkprop.gbdt import BoostedRanker
from sinkprop.linear.ranker import SinkPropRanker
from sinkprop.registry import load_model
from sinkprop.store import convert, open_queries, save_queries

pd = pytest.importorskip("pandas", reason="pandas is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")
pytest.importorskip("lightgbm", reason="lightgbm is not installed")

QUICK = {"n_estimators": 8, "num_leaves": 6, "n_threads": 1, "verbose": False}
KINDS = {
    "boosted": lambda: BoostedRanker(**QUICK, min_child_samples=5),
    "lightgbm": lambda: LightGBMRanker(**QUICK, min_child_samples=5, step=4),
    "xgboost": lambda: XGBoostRanker(**QUICK, min_child_weight=1.0, step=4),
    "catboost": lambda: CatBoostRanker(
        n_estimators=8, depth=3, l2_leaf_reg=None, learning_rate=0.3, step=4, n_threads=1, verbose=False
    ),
}


class Sources:
    """The same documents in memory, in Parquet, and in a stored set."""

    def __init__(self, folder):
        self.rows = frame(pd)
        self.X = features(self.rows)
        self.rows.to_parquet(folder / "a.parquet", index=False)
        self.stored = convert(folder / "a.parquet", folder / "a.queries", allow_nan=True, block_bytes=2000)
        self.queries = load_frame(self.rows, allow_nan=True)
        self.parquet = load_parquet(folder / "a.parquet", allow_nan=True)

    @property
    def arrays(self):
        return {"X": self.X, "y": self.rows["label"], "qid": self.rows["qid"]}


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    return Sources(tmp_path_factory.mktemp("categories"))


@pytest.fixture(scope="module", params=KINDS)
def fitted(request, sources):
    """A ranker fitted to the frame, and a function that makes another one."""
    if request.param in ("xgboost", "catboost"):
        pytest.importorskip(request.param, reason=f"{request.param} is not installed")
    make = KINDS[request.param]
    return make().fit(**sources.arrays), make


def test_every_source_gives_the_same_model_and_scores(fitted, sources, tmp_path):
    ranker, make = fitted
    scores = ranker.predict(sources.X)
    assert len(np.unique(scores)) > 10
    assert ranker.categories_ == {"site": SITES, "size": SIZES}
    ranker.save(tmp_path / "m")
    for other in (make().fit(sources.queries), make().fit(sources.stored), load_model(tmp_path / "m")):
        for data in (sources.X, sources.queries, sources.parquet, sources.stored, str(sources.stored.path)):
            assert_array_equal(other.predict(data), scores)
    assert ranker.score(sources.stored) == ranker.score(sources.queries)
    assert_array_equal(ranker.rank(sources.stored), ranker.rank(sources.queries))
    one = sources.queries.take(np.array([5]))
    assert_array_equal(ranker.predict(one), scores[5:6])
    assert_array_equal(ranker.predict(sources.X[5:6]), scores[5:6])


def test_trees_split_by_sets_of_categories(fitted, sources):
    ranker, _ = fitted
    text = ranker._text if hasattr(ranker, "_text") else ranker.booster_.model_to_string()
    if isinstance(ranker, CatBoostRanker):
        asked = {ranker.columns_[column] for tree in ranker.trees_.trees for column in tree.columns}
        assert any(code is not None for _, code in asked)
        assert {feature for feature, code in asked if code is not None} == {1}  # the sizes are ordered
        return
    assert "num_cat=1" in text or '"categories":[' in text.replace('"categories":[]', "")
    # "size" has an order, and is split like a number
    assert ranker._categories.unordered == (1,)


def test_categories_are_matched_by_value(fitted, sources, tmp_path):
    ranker, make = fitted
    scores = ranker.predict(sources.X)
    turned = sources.rows.assign(site=sources.rows["site"].cat.reorder_categories(SITES[::-1]))
    turned = turned[["size", "qid", "site", "label", "bm25"]]
    queries = load_frame(turned, allow_nan=True)
    assert queries.categories["site"] == SITES[::-1]
    stored = save_queries(tmp_path / "t.queries", queries, block_bytes=2000)
    for data in (queries, stored):
        assert_array_equal(ranker.predict(data), scores)
    with_eval = [make().fit(sources.queries, eval_set=item) for item in (sources.queries, queries, stored)]
    for other in with_eval[1:]:
        assert_array_equal(other.predict(sources.X), with_eval[0].predict(sources.X))


def test_unknown_categories_count_as_missing_with_one_warning(fitted, sources, tmp_path):
    ranker, _ = fitted
    changed = sources.rows["site"].cat.add_categories(["shop", "forum", "never"])
    changed[3::4], changed[5::50] = "shop", "forum"
    new, gone = (sources.rows.assign(site=c) for c in (changed, changed.cat.set_categories(SITES)))
    expected = ranker.predict(features(gone))
    queries = load_frame(new, allow_nan=True)
    stored = save_queries(tmp_path / "n.queries", queries, block_bytes=2000)
    assert stored.n_blocks > 3
    for data in (features(new), queries, stored):
        with pytest.warns(
            UserWarning, match="categories that were not in the training data.*'shop'"
        ) as caught:
            assert_array_equal(ranker.predict(data), expected)
        assert len(caught) == 1
    with warnings.catch_warnings():  # categories that no document has are no reason to warn
        warnings.simplefilter("error")
        ranker.predict(load_frame(sources.rows.assign(site=changed.cat.set_categories([*SITES, "never"])),
                                  allow_nan=True))  # fmt: skip


def test_a_column_without_any_value(fitted, sources):
    ranker, make = fitted
    empty = sources.rows.assign(
        site=pd.Categorical([None] * len(sources.rows), categories=SITES), bm25=np.nan
    )
    assert np.isfinite(ranker.predict(features(empty))).all()
    other = make().fit(load_frame(empty, allow_nan=True))
    assert len(np.unique(other.predict(features(empty)))) <= 3, "only the size tells documents apart"


def test_features_that_were_or_were_not_categories(fitted, sources):
    ranker, make = fitted
    numbers = sources.rows.assign(site=1.0)
    with pytest.raises(ValueError, match=r"column 'site' of X was categorical.*categorical=\[\.\.\.\]"):
        ranker.predict(load_frame(numbers, allow_nan=True))
    plain = make().fit(load_frame(numbers, allow_nan=True))
    with pytest.raises(ValueError, match="column 'site' of X was not categorical"):
        plain.predict(sources.queries)
    with pytest.raises(ValueError, match="column 'site' of X was not categorical"):
        plain.predict(sources.stored)
    codes = Queries(sources.queries.X, sources.queries.y, sources.queries.qid, allow_nan=True)
    assert_array_equal(ranker.predict(codes), ranker.predict(sources.X))  # without names, numbers are codes


@pytest.mark.parametrize("kind", ["lightgbm", "xgboost", "catboost"])
def test_codes_are_not_scaled_within_queries(kind, sources):
    pytest.importorskip(kind, reason=f"{kind} is not installed")
    ranker = KINDS[kind]().set_params(normalization="query")
    with pytest.raises(ValueError, match=r"normalization='query' would scale the codes .*'site', 'size'"):
        ranker.fit(sources.queries)


def test_a_model_without_categories_has_none_in_its_file(sources, tmp_path):
    ranker = KINDS["lightgbm"]().fit(sources.X[["bm25"]], sources.rows["label"], qid=sources.rows["qid"])
    ranker.save(tmp_path / "m")
    assert "categories" not in (tmp_path / "m").read_text()


def test_linear_rankers_name_the_columns(sources, tmp_path):
    whole = sources.rows.assign(bm25=1.0, site=sources.rows["site"].fillna("docs"))
    queries = load_frame(whole)
    stored = save_queries(tmp_path / "a.queries", queries)
    for ranker in (RegressionRanker(), SinkPropRanker(verbose=False)):
        for data in (queries, stored):
            with pytest.raises(ValueError, match="the features 'site', 'size' hold categories, which"):
                ranker.fit(data)
    number = RegressionRanker().fit(np.zeros((4, 3)), [0, 1, 0, 1], qid=[1, 1, 2, 2])
    for data in (queries, stored, open_queries(stored.path)):
        with pytest.raises(ValueError, match="which RegressionRanker does not accept"):
            number.predict(data)
