"""NeuralRanker on stored sets: the same network as from memory, with a bounded part of the set in memory."""

import dataclasses
import threading
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import sinkprop

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")
pytest.importorskip("pyarrow", reason="stored sets are Arrow files")

from sinkprop.model_files import ModelFileError  # noqa: E402
from sinkprop.store import StoredQueries, StoreError, save_queries  # noqa: E402
from sinkprop.torch import LBFGS, MLP, Adam  # noqa: E402
from sinkprop.torch.neural import feeds, preparation  # noqa: E402
from sinkprop.torch.neural import training as fitting  # noqa: E402
from sinkprop.torch.neural.preparation import Moments, Preparation, make_preparation  # noqa: E402
from sinkprop.torch.neural.stored import StoredSet  # noqa: E402
from sinkprop.torch.ranker import NeuralRanker  # noqa: E402

ROW_BYTES = 4 * 5


def some_queries(n_queries=40, seed=0):
    """Labels 0 to 2 by the first two of five features and noise; queries of 1 to 14 documents."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, n_queries)
    X = (3 * rng.normal(size=(sizes.sum(), 5))).astype(np.float32)
    y = np.digitize(X[:, 0] + X[:, 1] / 2 + rng.normal(size=len(X)), [0.5, 3]).astype(float)
    return sinkprop.Queries(X, y, np.repeat(rng.permutation(n_queries) + 10, sizes))


def stored_as(path, queries):
    return save_queries(path, queries, block_bytes=40 * ROW_BYTES, part_bytes=100 * ROW_BYTES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("stored")


@pytest.fixture(scope="module")
def data(folder):
    return some_queries()


@pytest.fixture(scope="module")
def stored(folder, data):
    found = stored_as(folder / "train.queries", data)
    assert found.n_blocks > 5
    return found


@pytest.fixture(scope="module")
def vali(folder):
    queries = some_queries(12, 9)
    return queries, stored_as(folder / "vali.queries", queries)


@pytest.fixture
def streaming(monkeypatch):
    """No set is so small that it is held in memory."""
    monkeypatch.setattr(feeds, "HELD_BYTES", 0)
    monkeypatch.setattr(feeds, "_SPAN_ROWS", 60)
    monkeypatch.setattr(preparation, "MOMENT_ROWS", 50)
    monkeypatch.setattr(feeds, "MOMENT_ROWS", 50)
    monkeypatch.setattr(fitting, "_SHARD_DOCUMENTS", 30)


ADAM = Adam(1e-2, batch_documents=70)


def quick(**options):
    settings = {"network": MLP((8,), dropout=0.2), "optimizer": ADAM, "max_epochs": 4}
    return NeuralRanker(**{**settings, **options})


def same_fit(a, b):
    first, second = a.module_.state_dict(), b.module_.state_dict()
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name
    assert_array_equal(a.scaling_.shift, b.scaling_.shift)
    assert_array_equal(a.scaling_.factor, b.scaling_.factor)
    assert (a.n_rows_, a.n_queries_, a.n_features_in_) == (b.n_rows_, b.n_queries_, b.n_features_in_)
    for x, y in zip(a.fit_result_.epochs, b.fit_result_.epochs, strict=True):
        # as text, since NaN, the criterion without validation queries, equals nothing
        assert repr(dataclasses.replace(x, seconds=0.0)) == repr(dataclasses.replace(y, seconds=0.0))
    assert (a.fit_result_.status, a.fit_result_.validated_on) == (
        b.fit_result_.status,
        b.fit_result_.validated_on,
    )


class Beside(torch.nn.Module):
    """Scores beside the mean of the query, through batch normalization and torch's own dropout."""

    def __init__(self, n_features):
        super().__init__()
        self.norm, self.linear = torch.nn.BatchNorm1d(n_features), torch.nn.Linear(n_features, 1)

    def forward(self, rows, offsets):
        sizes = offsets.diff()
        codes = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        means = torch.zeros(len(sizes), rows.shape[1]).index_add_(0, codes, rows) / sizes[:, None]
        return self.linear(torch.nn.functional.dropout(self.norm(rows) - means[codes], 0.2, self.training))


SETTINGS = {
    "standard": {},
    "query": {"normalization": "query", "optimizer": dataclasses.replace(ADAM, schedule="cosine")},
    "none": {"normalization": "none", "input_transform": "none", "dtype": "float64"},
    "all queries": {"validation_fraction": 0, "optimizer": dataclasses.replace(ADAM, clip_norm=0.01)},
    "lbfgs": {"optimizer": LBFGS(2, weight_decay=1e-3), "max_epochs": 2},
    "stopped early": {"max_epochs": 40, "patience": 1},
    "one's own module": {"network": Beside},
    "partitioned": {"relaxation": "probit", "max_epochs": 2},
    "listnet": {"loss": "listnet", "criterion": "err@10"},
}


class TestTheSameAsInMemory:
    @pytest.mark.parametrize("name", SETTINGS)
    def test_to_the_last_bit(self, name, data, stored, streaming):
        from_memory = quick(**SETTINGS[name]).fit(data.X, data.y, qid=data.qid)
        same_fit(quick(**SETTINGS[name]).fit(stored), from_memory)
        if name == "standard":
            same_fit(quick(n_threads=3).fit(stored), from_memory)
        if name == "stopped early":
            assert from_memory.fit_result_.status == "stopped early"

    def test_with_validation_queries(self, data, stored, vali, streaming):
        more = {"eval_set": [(vali[0].X, vali[0].y)], "eval_qid": [vali[0].qid]}
        from_memory = quick().fit(data.X, data.y, qid=data.qid, **more)
        same_fit(quick().fit(stored, eval_set=[vali[1]]), from_memory)
        same_fit(quick().fit(str(stored.path), eval_set=vali[1].path), from_memory)
        same_fit(quick().fit(stored, **more), from_memory)
        same_fit(quick().fit(data.X, data.y, qid=data.qid, eval_set=[vali[1]]), from_memory)
        assert from_memory.fit_result_.validated_on == "12 validation queries"
        both = {"eval_set": [(data.X, data.y), *more["eval_set"]], "eval_qid": [data.qid, *more["eval_qid"]]}
        from_memory = quick().fit(data.X, data.y, qid=data.qid, **both)
        mixed = {"eval_set": [stored, *more["eval_set"]], "eval_qid": more["eval_qid"]}
        same_fit(quick().fit(stored, **mixed), from_memory)

    def test_with_weights_of_queries(self, data, stored, streaming):
        weights = {q: float(q % 3) for q in data.groups.queries.tolist()}
        from_memory = quick().fit(data.X, data.y, qid=data.qid, query_weight=weights)
        same_fit(quick().fit(stored, query_weight=weights), from_memory)
        same_fit(
            quick().fit(stored, query_weight=[weights[q] for q in stored.query_ids.tolist()]), from_memory
        )
        with pytest.raises(ValueError, match="sum above 0"):
            quick().fit(stored, query_weight=np.zeros(stored.n_queries))

    def test_few_are_held_in_memory(self, data, stored, monkeypatch):
        def streamed(*_):
            raise AssertionError("streamed")

        monkeypatch.setattr(feeds, "Streamed", streamed)
        same_fit(quick().fit(stored), quick().fit(data.X, data.y, qid=data.qid))

    def test_files_of_text(self, data, tmp_path):
        halves = np.array_split(data.groups.queries, 2)
        paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
        for path, half in zip(paths, halves, strict=True):
            sinkprop.save_letor(path, data.select(half))
        read = [sinkprop.load_letor(path) for path in paths]
        X, y, qid = (np.concatenate([getattr(part, name) for part in read]) for name in ("X", "y", "qid"))
        same_fit(quick().fit(paths), quick().fit(X, y, qid=qid))

    def test_one_query(self, data, folder, streaming):
        one = data.select(data.groups.queries[5:6])
        found = quick().fit(stored_as(folder / "one.queries", one))
        same_fit(found, quick().fit(one.X, one.y, qid=one.qid))
        assert found.fit_result_.validated_on == "the one training query itself"


class TestWindows:
    def test_larger_sets_are_shuffled_by_windows(self, data, stored, streaming, monkeypatch):
        """The order differs from that in memory, and nothing else: in the same order, so is the network."""
        monkeypatch.setattr(feeds, "WINDOW_BYTES", 90 * ROW_BYTES)
        orders = []
        real = feeds.Streamed.windows

        def noted(self, rng):
            orders.append(real(self, rng))
            return orders[-1]

        monkeypatch.setattr(feeds.Streamed, "windows", noted)
        found = quick().fit(stored)
        assert len(orders) == 4
        assert len({tuple(np.concatenate(order)) for order in orders}) == 4
        assert all(len(order) > 2 for order in orders)
        again = iter(orders)
        monkeypatch.setattr(feeds.Held, "windows", lambda self, rng: next(again))
        same_fit(found, quick().fit(data.X, data.y, qid=data.qid))

    @given(
        window=st.integers(1, 400),
        held=st.sets(st.integers(0, 39), max_size=30),
        seed=st.integers(0, 2**32 - 1),
    )
    def test_every_query_is_in_one_window_of_whole_blocks(self, stored, window, held, seed):
        numbers = np.setdiff1d(np.arange(40), sorted(held))
        part = StoredSet(stored, numbers)
        feed = feeds.Streamed(part, blank_preparation())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(feeds, "WINDOW_BYTES", window * ROW_BYTES)
            found = feed.windows(np.random.default_rng(seed))
        assert_array_equal(np.sort(np.concatenate(found)), np.arange(len(numbers)))
        homes = [set(part.blocks[queries].tolist()) for queries in found]
        for i, home in enumerate(homes):
            assert all(home.isdisjoint(other) for other in homes[:i])
            assert len(home) == 1 or part.sizes[found[i]].sum() <= window

    def test_two_windows_are_in_memory_at_most(self, stored, streaming, monkeypatch):
        """The one in use and the one that is read ahead; as the next begins, the last may not be gone yet."""
        monkeypatch.setattr(feeds, "WINDOW_BYTES", 60 * ROW_BYTES)
        alive, most, lock = weakref.WeakSet(), 0, threading.Lock()
        real = feeds._Loaded

        def counted(*args):
            nonlocal most
            loaded = real(*args)
            with lock:
                alive.add(loaded)
                most = max(most, len(alive))
            return loaded

        monkeypatch.setattr(feeds, "_Loaded", counted)
        quick(max_epochs=2).fit(stored)
        assert 2 <= most <= 3

    def test_a_minibatch_larger_than_a_window_is_read_shard_by_shard(
        self, data, stored, streaming, monkeypatch
    ):
        monkeypatch.setattr(feeds, "WINDOW_BYTES", 10 * ROW_BYTES)
        read = []
        monkeypatch.setattr(feeds.Streamed, "windows", lambda self, rng: [rng.permutation(len(self.sizes))])
        real = feeds.Streamed.shard
        monkeypatch.setattr(feeds.Streamed, "shard", lambda self, q: read.append(len(q)) or real(self, q))
        found = quick(optimizer=Adam(1e-2, batch_documents=10**6)).fit(stored)
        assert sum(read) >= 4 * 32
        same_fit(found, quick(optimizer=Adam(1e-2, batch_documents=10**6)).fit(data.X, data.y, qid=data.qid))


class TestInterruptAndResume:
    def test_a_fit_resumes_to_the_same_bits(self, stored, vali, streaming, monkeypatch, tmp_path):
        monkeypatch.setattr(feeds, "WINDOW_BYTES", 90 * ROW_BYTES)
        whole = quick().fit(stored, eval_set=[vali[1]])
        path = tmp_path / "fit.checkpoint"

        def power_cut(epoch):
            if epoch.loss < whole.fit_result_.epochs[0].loss:
                raise SystemExit

        with pytest.raises(SystemExit):
            quick(checkpoint=path, on_epoch=power_cut).fit(stored, eval_set=[vali[1]])
        assert path.exists()
        with pytest.raises(ModelFileError, match="other data or parameters"):
            quick(checkpoint=path).fit(vali[1], eval_set=[vali[1]])
        same_fit(quick(checkpoint=path).fit(stored, eval_set=[vali[1]]), whole)
        assert not path.exists()

    def test_an_interrupt_keeps_the_best_network(self, stored, streaming):
        def interrupt(epoch):
            raise KeyboardInterrupt

        with pytest.warns(RuntimeWarning, match="interrupted; the network is the best"):
            ranker = quick(on_epoch=interrupt).fit(stored)
        assert ranker.fit_result_.status == "interrupted"
        assert threading.active_count() == 1 or not any(
            thread.name.startswith("sinkprop") for thread in threading.enumerate()
        )

    def test_an_error_of_the_reader_ends_the_fit(self, stored, streaming, monkeypatch):
        monkeypatch.setattr(feeds, "WINDOW_BYTES", 60 * ROW_BYTES)
        calls, real = 0, StoredQueries.take

        def failing(self, numbers):
            nonlocal calls
            calls += 1
            if calls > 40:
                raise StoreError("part-00001.arrow: the disk is gone")
            return real(self, numbers)

        monkeypatch.setattr(StoredQueries, "take", failing)
        with pytest.raises(StoreError, match="the disk is gone"):
            quick(max_epochs=50).fit(stored)
        assert not any(thread.name.startswith("sinkprop") for thread in threading.enumerate())


class TestBadInput:
    @pytest.mark.parametrize("name", ["y", "qid", "group", "sample_weight"])
    def test_what_a_stored_set_has_or_has_not(self, name, stored):
        with pytest.raises(ValueError, match=f"fit: give no {name} with a stored set, which has"):
            quick().fit(stored, **{name: np.ones(len(stored))})

    def test_wrong_evaluation_sets(self, data, stored, vali, folder):
        with pytest.raises(ValueError, match="eval_qid and eval_group need an eval_set"):
            quick().fit(stored, eval_set=[vali[1]], eval_qid=[vali[0].qid])
        narrow = sinkprop.Queries(vali[0].X[:, :3], vali[0].y, vali[0].qid)
        other = stored_as(folder / "narrow.queries", narrow)
        with pytest.raises(
            ValueError, match=r"narrow.queries has 3 features, but NeuralRanker is expecting 5"
        ):
            quick().fit(stored, eval_set=[other])

    def test_a_damaged_set(self, data, tmp_path):
        damaged = stored_as(tmp_path / "damaged.queries", data)
        part = next(damaged.path.glob("part-*.arrow"))
        content = bytearray(part.read_bytes())
        content[len(content) // 2] ^= 1
        part.write_bytes(content)
        with pytest.raises(StoreError, match=r"part-\d+\.arrow: the file is damaged") as error:
            quick(checkpoint=tmp_path / "fit.checkpoint").fit(damaged)
        assert "\n" not in str(error.value)
        assert not (tmp_path / "fit.checkpoint").exists()

    def test_a_frame_of_a_cluster(self):
        frame = SimpleNamespace(npartitions=1, columns=("a", "label", "qid"), to_delayed=None)
        with pytest.raises(ValueError, match=r"X is a Dask DataFrame: .* or take X\.compute\(\)"):
            quick().fit(frame, "label", qid="qid")

    def test_a_missing_folder(self, tmp_path):
        with pytest.raises((StoreError, FileNotFoundError), match="nowhere"):
            quick().fit(tmp_path / "nowhere.queries")

    @pytest.mark.parametrize(
        ("changed", "said"),
        [({"has_nan": True}, "are NaN .missing."), ({"label": "none"}, "without labels")],
    )
    def test_what_a_network_makes_nothing_of(self, changed, said, data, stored):
        other = dataclasses.replace(stored, manifest=dataclasses.replace(stored.manifest, **changed))
        with pytest.raises(ValueError, match=f"train.queries: .*{said}"):
            quick(missing="error").fit(other)
        with pytest.raises(ValueError, match=f"train.queries: .*{said}"):
            quick(missing="error").fit(data.X, data.y, qid=data.qid, eval_set=[other])

    def test_features_go_by_their_names(self, data, stored, vali, folder, streaming):
        X = dict(zip("abcde", vali[0].X.T, strict=True))
        named = dataclasses.replace(data, feature_names=tuple("abcde"))
        train = save_queries(folder / "named.queries", named, block_bytes=40 * ROW_BYTES)
        sets = {
            names: save_queries(
                folder / f"{names}.queries",
                dataclasses.replace(
                    vali[0],
                    X=np.stack([X.get(name, X["a"]) for name in names], 1),
                    feature_names=tuple(names),
                ),
            )
            for names in ("abcde", "cadbe", "abcdf")
        }
        ranker = quick().fit(train, eval_set=[sets["cadbe"]])
        same_fit(ranker, quick().fit(train, eval_set=[sets["abcde"]]))
        assert ranker.feature_names_in_.tolist() == list("abcde")
        with pytest.raises(ValueError, match="only one of them has 'e'"):
            quick().fit(train, eval_set=[sets["abcdf"]])
        assert not hasattr(ranker.fit(stored), "feature_names_in_")


def blank_preparation():
    return make_preparation("none", "none", None, 5, torch.float32)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_moments_of_parts_add_up_to_those_of_all(sizes, seed):
    X = np.random.default_rng(seed).normal(100, 2, size=(sum(sizes) + 1, 3))
    total = Moments.of(X[:1], "none")
    for begin, size in zip(np.cumsum([1, *sizes]), sizes, strict=False):
        total += Moments.of(X[begin : begin + size], "none")
    assert total.n == len(X)
    np.testing.assert_allclose(total.mean, X.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(
        total.square, np.square(X - X.mean(axis=0)).sum(axis=0), rtol=1e-12, atol=1e-20
    )
    again = Moments.from_vector(total.vector())
    assert again.n == total.n
    assert_array_equal(again.square, total.square)


def test_rows_are_prepared_the_same_wherever_they_stand(data):
    scaling = make_preparation("log1p", "standard", Moments.of(data.X, "log1p"), 5, torch.float32).scaling
    prepare = Preparation("log1p", scaling, torch.float32)
    whole = prepare(data.X)
    expected = np.copysign(np.log1p(np.abs(data.X.astype(float))), data.X)
    expected = (expected - expected.mean(axis=0)) / expected.std(axis=0)
    np.testing.assert_allclose(whole.numpy(), expected, rtol=1e-6, atol=1e-6)
    for first in (0, 1, 7):
        assert torch.equal(prepare(data.X[first : first + 5]), whole[first : first + 5])
