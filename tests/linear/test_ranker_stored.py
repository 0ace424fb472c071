"""Linear fits on stored sets: the model of the same rows in memory, bit for bit."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone

from sinkprop import Annealing, Queries, Selection, SinkPropRanker, save_letor
from sinkprop.baselines import RegressionRanker, SmoothRankRanker
from sinkprop.linear.ascent import Objective
from sinkprop.store import StoreError, convert, open_queries

pytest.importorskip("pyarrow", reason="stored sets are Arrow files")


def queries(n_queries, seed, first=0):
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, n_queries)
    n = sizes.sum()
    X = rng.normal(size=(n, 4)).astype(np.float32)
    y = np.digitize(X @ [1, 0.5, 0, -1] + rng.normal(size=n), [0.5, 2]).astype(float)
    return Queries(X, y, np.repeat(np.arange(first, first + n_queries), sizes))


@pytest.fixture(scope="module")
def sets(tmp_path_factory):
    """(rows, stored set) of training and of validation queries, in blocks of a few queries."""
    folder = tmp_path_factory.mktemp("stored")
    found = []
    for name, part in (("train", queries(40, 0)), ("vali", queries(15, 1, 100))):
        save_letor(folder / f"{name}.txt", part)
        made = convert([folder / f"{name}.txt"], folder / f"{name}.queries", block_bytes=1500)
        assert made.n_blocks > 2
        found.append((part, made))
    return found


def quick(**parameters):
    few = {"penalty": 1e-3, "annealing": Annealing(2, 0.5), "max_iter": 3, "verbose": False}
    return SinkPropRanker(**{**few, **parameters})


def in_memory(ranker, train, vali=None, **options):
    if vali is not None:
        options |= {"eval_set": [(vali.X, vali.y)], "eval_qid": [vali.qid]}
    return ranker.fit(train.X, train.y, qid=train.qid, **options)


@pytest.mark.parametrize(
    ("parameters", "validated", "n_threads"),
    [
        ({}, False, 2),
        ({}, True, 1),
        ({"selection": Selection("validation")}, False, 1),
        ({"selection": Selection("validation")}, True, 2),
        ({"normalization": "query"}, True, 2),
        ({"normalization": "none"}, False, 1),
    ],
    ids=str,
)
def test_the_model_is_that_of_the_rows_in_memory(sets, parameters, validated, n_threads):
    (train, stored), (vali, other) = sets
    expected = in_memory(quick(**parameters), train, vali if validated else None)
    found = quick(n_threads=n_threads, **parameters).fit(stored, eval_set=[other] if validated else None)
    assert_array_equal(found.coef_, expected.coef_)
    assert found.fit_result_.validated_on == expected.fit_result_.validated_on
    assert (found.n_rows_, found.n_queries_, found.n_features_in_) == (len(train), 40, 4)
    assert_array_equal(found.predict(train.X, qid=train.qid), expected.predict(train.X, qid=train.qid))


def test_a_path_is_as_good_as_the_set(sets):
    (train, stored), (vali, other) = sets
    expected = in_memory(quick(), train, vali)
    assert_array_equal(quick().fit(stored.path, eval_set=str(other.path)).coef_, expected.coef_)


def test_rows_in_memory_are_validated_on_a_stored_set(sets):
    (train, _), (vali, other) = sets
    found = quick().fit(train.X, train.y, qid=train.qid, eval_set=[other])
    assert_array_equal(found.coef_, in_memory(quick(), train, vali).coef_)


def test_queries_have_weights(sets):
    (train, stored), _ = sets
    weight = np.random.default_rng(0).uniform(0, 2, 40)
    expected = in_memory(quick(), train, query_weight=weight)
    assert_array_equal(quick().fit(stored, query_weight=weight).coef_, expected.coef_)
    by_id = dict(enumerate(weight.tolist()))
    assert_array_equal(quick().fit(stored, query_weight=by_id).coef_, expected.coef_)


def test_a_list_of_files_is_read(sets, tmp_path):
    (train, _), _ = sets
    halves = train.select(np.arange(20)), train.select(np.arange(20, 40))
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path, half in zip(paths, halves, strict=True):
        save_letor(path, half)
    found = quick().fit(paths)
    assert found.n_queries_ == 40
    np.testing.assert_allclose(found.coef_, in_memory(quick(), train).coef_, atol=1e-4)  # float64 there
    save_letor(paths[1], train.select(np.arange(19, 40)))
    with pytest.raises(ValueError, match=r"query 19 is in two files, .*a\.txt and .*b\.txt"):
        quick().fit(paths)
    with pytest.raises(ValueError, match=r"query 0 is in two files, .*a\.txt and .*a\.txt"):
        quick().fit([paths[0], paths[0]])
    with pytest.raises(ValueError, match="give no y with a list of files, which has its own"):
        quick().fit(paths, train.y)
    save_letor(paths[1], Queries(train.X[:, :3], train.y, train.qid + 100))
    with pytest.raises(ValueError, match=r"b\.txt has 3 features, but .*a\.txt has 4\. .* --n-features 4"):
        quick().fit(paths)


class FrameOfCluster:
    """What tells a Dask DataFrame."""

    npartitions, columns, to_delayed = 1, ("a", "label", "qid"), None


@pytest.mark.parametrize("ranker", [SinkPropRanker(), RegressionRanker()])
def test_a_frame_of_a_cluster_needs_one(ranker):
    with pytest.raises(ValueError, match="X is a Dask DataFrame: give cluster="):
        ranker.fit(FrameOfCluster(), "label", qid="qid")


def test_others_load_a_stored_set(sets):
    (train, stored), (vali, other) = sets
    found = RegressionRanker().fit(stored, eval_set=[other])
    assert_array_equal(found.coef_, in_memory(RegressionRanker(), train, vali).coef_)
    smooth = SmoothRankRanker(penalty=1e-3, annealing=Annealing(2, 0.5), max_iter=3, verbose=False)
    assert_array_equal(clone(smooth).fit(stored).coef_, in_memory(smooth, train).coef_)


def test_a_fit_on_a_set_resumes_from_its_checkpoint(sets, tmp_path, monkeypatch):
    (_, stored), (_, other) = sets
    path = tmp_path / "fit.checkpoint"
    validated = {"selection": Selection("validation")}
    whole = quick(**validated).fit(stored, eval_set=[other])
    real, calls = Objective.value, 0

    def interrupted(*args):
        nonlocal calls
        calls += 1
        if calls == 8:
            raise KeyboardInterrupt
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(Objective, "value", interrupted)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            quick(checkpoint=path, **validated).fit(stored, eval_set=[other])
    assert path.exists()
    resumed = quick(checkpoint=path, **validated).fit(stored, eval_set=[other])
    assert_array_equal(resumed.coef_, whole.coef_)
    assert not path.exists()


def test_what_is_wrong_with_a_set_is_said_before_training(sets, tmp_path, monkeypatch):
    (train, stored), (_, other) = sets
    monkeypatch.setattr(Objective, "value", None)  # nothing is trained
    with pytest.raises(ValueError, match="give no y with a stored set"):
        quick().fit(stored, train.y)
    with pytest.raises(ValueError, match=r"sample_weight .* no row weights: give query_weight"):
        quick().fit(stored, sample_weight=train.y)
    with pytest.raises(StoreError, match="not a stored set"):
        quick().fit(tmp_path)
    with pytest.raises(ValueError, match="2 sets were given, and one of them is stored"):
        quick().fit(stored, eval_set=[other, other])
    with pytest.raises(ValueError, match="a stored eval_set has its own"):
        quick().fit(stored, eval_set=[other], eval_qid=[train.qid])
    narrow = Queries(train.X[:, :3], train.y, train.qid)
    save_letor(tmp_path / "narrow.txt", narrow)
    three = convert([tmp_path / "narrow.txt"], tmp_path / "narrow.queries")
    with pytest.raises(ValueError, match="eval_set has 3 features, but SinkPropRanker is fitted to 4"):
        quick().fit(stored, eval_set=[three])


def test_a_damaged_set_is_named_before_training(sets, tmp_path, monkeypatch):
    (train, _), _ = sets
    save_letor(tmp_path / "a.txt", train)
    stored = convert([tmp_path / "a.txt"], tmp_path / "a.queries")
    part = next(stored.path.glob("part-*.arrow"))
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    monkeypatch.setattr(Objective, "value", None)
    with pytest.raises(StoreError, match=r"part-\d+\.arrow: block 0 is damaged") as error:
        quick(checkpoint=tmp_path / "checkpoint").fit(open_queries(stored.path))
    assert "\n" not in str(error.value)
    assert not (tmp_path / "checkpoint").exists()


def test_a_cluster_is_no_part_of_a_model(tmp_path):
    class Client:
        scheduler = type("Scheduler", (), {"address": "tcp://127.0.0.1:8786"})

        def __deepcopy__(self, memo):
            raise TypeError("cannot be copied")

        __reduce__ = None

    ranker = quick(cluster=Client())
    assert clone(ranker).cluster is ranker.cluster
    assert pickle.loads(pickle.dumps(ranker)).cluster == "tcp://127.0.0.1:8786"
    train = queries(10, 2)
    fitted = in_memory(quick(), train)
    fitted.cluster = Client()
    fitted.save(tmp_path / "model")
    assert SinkPropRanker.load(tmp_path / "model").cluster is None
