"""ListTransformer: attention between the documents of a query."""

import dataclasses
import itertools
import subprocess
import sys
import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")

import sinkprop  # noqa: E402
from sinkprop.store import save_queries  # noqa: E402
from sinkprop.torch import LBFGS, Adam, ListTransformer, NeuralRanker  # noqa: E402
from sinkprop.torch.networks.attention import padded_groups  # noqa: E402

SMALL = ListTransformer(8, dropout=0.0)


def ragged(sizes, n_features=4, seed=0):
    rng = torch.Generator().manual_seed(seed)
    rows = torch.randn(sum(sizes), n_features, generator=rng, dtype=torch.float64)
    return rows, torch.tensor([0, *np.cumsum(sizes)])


def module(settings=SMALL, n_features=4, n_outputs=1, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return settings(n_features, n_outputs).double().eval()


def relative_data(n_queries=60, seed=0):
    """Labels by the place of a feature between its query's other values; rows of a query are scattered."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(2, 12, n_queries)
    qid = rng.permutation(np.repeat(np.arange(n_queries), sizes))
    X = rng.normal(size=(len(qid), 3)) + 2 * rng.normal(size=n_queries)[qid, None]
    middle = np.array([X[qid == q, 0].mean() for q in range(n_queries)])
    return X, np.digitize(-np.abs(X[:, 0] - middle[qid]), [-1.0, -0.4]), qid


def quick(**options):
    return NeuralRanker(**{"network": SMALL, "optimizer": Adam(1e-2), "max_epochs": 4, **options})


def by_hand(net, rows):
    """Scores of one query, from the formulas of a pre-norm transformer, by NumPy."""
    tensors = {name: x.numpy() for name, x in net.state_dict().items()}

    def linear(x, name):
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def normalized(x, name):
        centered = x - x.mean(axis=1, keepdims=True)
        spread = np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
        return centered / spread * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    given = np.hstack([rows, rows - rows.mean(axis=0)])
    x = linear(given[:, : tensors["embed.weight"].shape[1]], "embed")
    for i, block in enumerate(net.blocks):
        at, heads = f"blocks.{i}", block.attention.heads
        q, k, v = np.split(linear(normalized(x, f"{at}.before_attention"), f"{at}.attention.project"), 3, 1)
        width = q.shape[1] // heads
        seen = []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            weight = np.exp(q[:, part] @ k[:, part].T / np.sqrt(width))
            seen.append(weight / weight.sum(axis=1, keepdims=True) @ v[:, part])
        x = x + linear(np.hstack(seen), f"{at}.attention.out")
        hidden = np.maximum(linear(normalized(x, f"{at}.before_layers"), f"{at}.layers.0"), 0)
        x = x + linear(hidden, f"{at}.layers.3")
    return (linear(normalized(x, "normalize"), "head") + linear(rows, "linear"))[:, 0]


class TestModule:
    @pytest.mark.parametrize("sizes", [[1], [5], [3, 1, 7], [40, 2, 39, 1, 1, 700]])
    @pytest.mark.parametrize("relative", [True, False])
    def test_it_is_a_transformer_on_each_query(self, sizes, relative):
        net = module(ListTransformer(8, blocks=2, heads=4, relative=relative))
        rows, offsets = ragged(sizes)
        with torch.no_grad():
            scores = net(rows, offsets=offsets).numpy()
        for first, last in itertools.pairwise(offsets):
            assert_allclose(scores[first:last], by_hand(net, rows[first:last].numpy()), rtol=1e-9, atol=1e-11)

    def test_gradients_of_a_ragged_batch_are_those_of_its_queries(self):
        net, (rows, offsets) = module(), ragged([3, 1, 9, 8])
        net(rows, offsets=offsets).square().sum().backward()
        together = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        for first, last in itertools.pairwise(offsets):
            net(rows[first:last], offsets=torch.tensor([0, last - first])).square().sum().backward()
        for p, expected in zip(net.parameters(), together, strict=True):
            assert_allclose(p.grad.numpy(), expected.numpy(), rtol=1e-9, atol=1e-11)

    def test_two_outputs(self):
        rows, offsets = ragged([2, 3])
        assert module(n_outputs=2)(rows, offsets=offsets).shape == (5, 2)

    def test_groups_hold_each_row_once_and_little_padding(self):
        rng = np.random.default_rng(0)
        sizes = np.r_[rng.integers(1, 400, 500), 20_000]
        found = padded_groups(torch.tensor(np.r_[0, np.cumsum(sizes)]))
        rows = [r.flatten() if mask is None else r[mask] for r, mask in found]
        assert_array_equal(torch.cat(rows).sort().values, np.arange(sizes.sum()))
        assert sum(r.numel() for r, _ in found) < 1.2 * sizes.sum()
        assert sorted(r.numel() for r, _ in found)[-2] <= 1 << 14

    @pytest.mark.skipif(sys.platform == "win32", reason="Windows has no module resource")
    def test_memory_is_not_quadratic_in_the_documents(self):
        program = """
import resource, torch
from sinkprop.torch import ListTransformer
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
net = ListTransformer(4, heads=2)(2).eval()
rows, offsets = torch.zeros(9_999, 2), torch.tensor([0, 5_000, 9_999])
with torch.inference_mode():
    net(rows[:10], offsets=torch.tensor([0, 4, 10]))
    before = peak()
    net(rows, offsets=offsets)
print(peak() / before)
"""
        found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert float(found.stdout) < 1.4  # the matrices of pairs take 400 MB, torch itself 300

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"width": 0}, "width must be at least 1"),
            ({"width": 9}, "width must be a multiple of heads; got 9 and 2"),
            ({"blocks": 0}, "blocks must be at least 1"),
            ({"activation": "swish"}, "activation must be"),
            ({"dropout": 1.0}, "dropout must be below 1"),
            ({"linear": 1}, "linear must be True or False"),
            ({"relative": None}, "relative must be True or False"),
        ],
    )
    def test_wrong_settings(self, settings, message):
        with pytest.raises(ValueError, match=message):
            ListTransformer(**settings)


class TestRanker:
    def test_it_learns_what_depends_on_the_other_documents(self):
        X, y, qid = relative_data(120)
        Xt, yt, qt = relative_data(80, seed=1)
        found = {}
        for name, network in {"rows": None, "list": ListTransformer(16, dropout=0.0)}.items():
            ranker = quick(network=network, max_epochs=30)
            found[name] = ranker.fit(X, y, qid=qid).score(Xt, yt, qid=qt)
        assert found["list"] > found["rows"] + 0.05

    def test_scores_follow_their_rows_in_any_order(self):
        X, y, qid = relative_data()
        ranker = quick().fit(X, y, qid=qid)
        scores = ranker.predict(X, qid=qid)
        order = np.random.default_rng(1).permutation(len(X))
        assert_array_equal(ranker.predict(X[order], qid=qid[order]), scores[order])
        one = qid == 7
        assert_array_equal(ranker.predict(X[one], qid=qid[one]), scores[one])
        assert not np.array_equal(ranker.predict(X[one][:-1], qid=qid[one][:-1]), scores[one][:-1])

    def test_equal_documents_tie(self):
        X, y, qid = relative_data()
        ranker = quick().fit(X, y, qid=qid)
        scores = ranker.predict(np.repeat(X[:5], 3, axis=0), group=[15])
        assert_array_equal(scores.reshape(5, 3), scores[::3, None].repeat(3, axis=1))

    def test_predict_needs_the_queries(self):
        X, y, qid = relative_data()
        ranker = quick().fit(X, y, qid=qid)
        with pytest.raises(ValueError, match="predict needs qid=: the network looks at the documents"):
            ranker.predict(X)

    def test_many_queries_are_scored_chunk_by_chunk(self, monkeypatch):
        X, y, qid = relative_data(20)
        ranker = quick().fit(X, y, qid=qid)
        rows, forward = [], type(ranker.module_).forward

        def spied(module, features, offsets):
            rows.append(len(features))
            return forward(module, features, offsets)

        monkeypatch.setattr(type(ranker.module_), "forward", spied)
        many = np.tile(X, (100, 1))
        ids = (np.arange(100)[:, None] * 20 + qid).ravel()
        scores = ranker.predict(many, qid=ids)
        assert max(rows) <= 8192 < sum(rows) == len(many)
        assert_array_equal(scores, np.tile(ranker.predict(X, qid=qid), 100))

    def test_the_model_file_holds_its_settings(self, tmp_path):
        X, y, qid = relative_data()
        network = ListTransformer(8, blocks=2, heads=4, activation="gelu", dropout=0.1, linear=False)
        ranker = quick(network=network).fit(X, y, qid=qid)
        ranker.save(tmp_path / "list.safetensors")
        same = sinkprop.load_model(tmp_path / "list.safetensors")
        assert same.network == network
        assert_array_equal(same.predict(X, qid=qid), ranker.predict(X, qid=qid))
        with pytest.raises(ValueError, match="load it without network="):
            NeuralRanker.load(tmp_path / "list.safetensors", network=network)

    def test_a_checkpoint_resumes_to_the_same_network(self, tmp_path):
        X, y, qid = relative_data()
        options = {"network": dataclasses.replace(SMALL, dropout=0.3)}
        whole = quick(**options).fit(X, y, qid=qid)

        def stop(epoch):
            raise SystemExit

        ranker = quick(**options, checkpoint=tmp_path / "fit", on_epoch=stop)
        with pytest.raises(SystemExit):
            ranker.fit(X, y, qid=qid)
        ranker.set_params(on_epoch=None).fit(X, y, qid=qid)
        assert_array_equal(ranker.predict(X, qid=qid), whole.predict(X, qid=qid))

    def test_the_number_of_threads_does_not_change_it(self, monkeypatch):
        from sinkprop.torch.neural import training

        monkeypatch.setattr(training, "_SHARD_DOCUMENTS", 50)
        X, y, qid = relative_data()
        options = {"network": dataclasses.replace(SMALL, dropout=0.3)}
        one, two = (quick(**options, n_threads=n).fit(X, y, qid=qid) for n in (1, 2))
        for name, x in one.module_.state_dict().items():
            assert torch.equal(x, two.module_.state_dict()[name]), name

    def test_stored_sets(self, tmp_path):
        X, y, qid = relative_data()
        order = np.argsort(qid, kind="stable")
        queries = sinkprop.Queries(X[order].astype(np.float32), y[order], qid[order])
        stored = save_queries(tmp_path / "some.queries", queries)
        ranker = quick().fit(stored, eval_set=[stored])
        assert_allclose(ranker.predict(stored), ranker.predict(queries), rtol=1e-6)
        assert ranker.score(stored) == pytest.approx(ranker.score(queries))

    @pytest.mark.parametrize("relaxation", ["laplace", "probit"])
    def test_other_relaxations(self, relaxation):
        X, y, qid = relative_data(20)
        ranker = quick(relaxation=relaxation).fit(X, y, qid=qid)
        ranks = ranker.rank(X, qid=qid)
        for q in range(20):
            assert sorted(ranks[qid == q]) == list(range(1, (qid == q).sum() + 1))

    def test_it_cannot_be_exported(self, tmp_path):
        pytest.importorskip("onnx")
        from sinkprop.export import to_onnx

        X, y, qid = relative_data(20)
        with pytest.raises(ValueError, match="looks at the documents of a query together"):
            to_onnx(quick(max_epochs=1).fit(X, y, qid=qid))

    @pytest.mark.parametrize(
        "case", ["one query", "one document per query", "no relevant document", "missing values", "lbfgs"]
    )
    def test_awkward_data(self, case):
        X, y, qid = relative_data(12)
        options = {}
        if case == "one query":
            qid = np.zeros(len(y), int)
            options["validation_fraction"] = 0
        elif case == "one document per query":
            qid = np.arange(len(y))
        elif case == "no relevant document":
            y = y * 0
        elif case == "missing values":
            X[::5, 1] = np.nan
        else:
            options["optimizer"] = LBFGS(2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            ranker = quick(max_epochs=2, **options).fit(X, y, qid=qid)
        assert np.isfinite(ranker.predict(X, qid=qid)).all()
