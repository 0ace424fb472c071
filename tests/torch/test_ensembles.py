"""Several networks as one model, noise on the inputs, and the start of the training."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")

import sinkprop  # noqa: E402
from sinkprop import evaluate  # noqa: E402
from sinkprop.torch import LBFGS, MLP, Adam, ListTransformer, NetworkOverflowError, NeuralRanker  # noqa: E402
from sinkprop.torch.losses.cross_entropy import gain_cross_entropy  # noqa: E402
from sinkprop.torch.neural import training  # noqa: E402

NETWORK = MLP((8,), dropout=0.2)


def ranking_data(n_queries=30, seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(2, 15, n_queries))
    X = rng.normal(size=(len(qid), 5))
    return X, np.digitize(X @ [2, 1, 0, 0, 0] + rng.normal(size=len(qid)), [0.5, 2]), qid


def quick(**options):
    return NeuralRanker(**{"network": NETWORK, "optimizer": Adam(1e-2), "max_epochs": 4, **options})


@pytest.fixture(scope="module")
def data():
    return ranking_data()


class TestEnsemble:
    def test_scores_are_means_of_standardized_scores(self, data):
        X, y, qid = data
        ranker = quick(n_networks=3, validation_fraction=0).fit(X, y, qid=qid)
        alone = quick(validation_fraction=0).fit(X, y, qid=qid)
        parts = []
        for network in ranker.module_.networks:
            alone.module_ = network
            parts.append(alone.predict(X))
        assert not np.allclose(parts[0], parts[1])
        means = [np.array([part[qid == q].mean() for q in range(30)])[qid] for part in parts]
        spreads = [np.sqrt(np.square(part - mean).mean()) for part, mean in zip(parts, means, strict=True)]
        expected = np.mean([part / spread for part, spread in zip(parts, spreads, strict=True)], axis=0)
        assert_allclose(ranker.predict(X), spreads[0] * expected, rtol=1e-4, atol=1e-5)

    def test_the_first_network_is_the_network_alone(self, data):
        X, y, qid = data
        ranker, alone = quick(n_networks=2).fit(X, y, qid=qid), quick().fit(X, y, qid=qid)
        for name, x in alone.module_.state_dict().items():
            assert torch.equal(x, ranker.module_.networks[0].state_dict()[name])

    def test_its_record(self, data):
        X, y, qid = data
        Xv, yv, qv = ranking_data(20, seed=1)
        ranker = quick(n_networks=3, criterion="ndcg@10").fit(
            X, y, qid=qid, eval_set=[(Xv, yv)], eval_qid=[qv]
        )
        result = ranker.fit_result_
        assert len(result.members) == 3
        assert result.epochs == result.members[0].epochs
        assert result.value == pytest.approx(
            evaluate(yv, ranker.predict(Xv), qv, metrics=["ndcg@10"])["ndcg@10"]
        )
        assert "3 networks, of the epochs" in repr(result)
        assert f"ndcg@10 {result.value:.4f}" in repr(result)

    @pytest.mark.parametrize("network", [NETWORK, ListTransformer(8, dropout=0.1)])
    def test_one_file_holds_all(self, data, network, tmp_path):
        X, y, qid = data
        ranker = quick(n_networks=2, network=network).fit(X, y, qid=qid)
        ranker.save(tmp_path / "two.safetensors")
        same = sinkprop.load_model(tmp_path / "two.safetensors")
        assert same.n_networks == 2
        assert_array_equal(same.predict(X, qid=qid), ranker.predict(X, qid=qid))
        assert [len(m.epochs) for m in same.fit_result_.members] == [
            len(m.epochs) for m in ranker.fit_result_.members
        ]
        assert same.fit_result_.value == ranker.fit_result_.value

    def test_a_network_of_the_user_is_loaded_with_its_code(self, data, tmp_path):
        X, y, qid = data

        def own(n_features):
            return torch.nn.Linear(n_features, 1)

        ranker = quick(n_networks=2, network=own).fit(X, y, qid=qid)
        ranker.save(tmp_path / "own.safetensors")
        same = NeuralRanker.load(tmp_path / "own.safetensors", network=own)
        assert_array_equal(same.predict(X), ranker.predict(X))

    @pytest.mark.parametrize("at", [2, 6])
    def test_it_resumes_in_the_network_that_was_interrupted(self, data, at, tmp_path):
        X, y, qid = data
        whole = quick(n_networks=2, patience=100).fit(X, y, qid=qid)
        count = 0

        def stop(epoch):
            nonlocal count
            count += 1
            if count == at:
                raise SystemExit

        ranker = quick(n_networks=2, patience=100, checkpoint=tmp_path / "fit", on_epoch=stop)
        with pytest.raises(SystemExit):
            ranker.fit(X, y, qid=qid)
        assert len(list(tmp_path.iterdir())) == 1 + (at > 4)
        count = 100
        ranker.fit(X, y, qid=qid)
        assert count - 100 in (8 - at, 9 - at)  # the epoch that was interrupted is perhaps not in the file
        assert_array_equal(ranker.predict(X), whole.predict(X))
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("after", [5, 6])
    def test_an_interrupt_keeps_the_networks_so_far(self, data, after, monkeypatch):
        X, y, qid = data
        count, epoch = 0, training._Trainer._epoch

        def interrupted(trainer, number, watch):
            nonlocal count
            count += 1
            if count == after:
                raise KeyboardInterrupt
            return epoch(trainer, number, watch)

        monkeypatch.setattr(training._Trainer, "_epoch", interrupted)
        ranker = quick(n_networks=3, patience=100)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            ranker.fit(X, y, qid=qid)
        assert len(ranker.module_.networks) == len(ranker.fit_result_.members) == after - 4
        assert ranker.fit_result_.status == "interrupted"
        assert np.isfinite(ranker.predict(X)).all()

    def test_an_overflow_keeps_the_networks_so_far(self, data, monkeypatch):
        X, y, qid = data
        count, epoch = 0, training._Trainer._epoch

        def overflowing(trainer, number, watch):
            nonlocal count
            count += 1
            if count == 6:
                raise NetworkOverflowError("the scores of the network became NaN or infinite.")
            return epoch(trainer, number, watch)

        monkeypatch.setattr(training._Trainer, "_epoch", overflowing)
        ranker = quick(n_networks=3, patience=100)
        with pytest.raises(NetworkOverflowError, match="The ranker has the mean of 2 networks"):
            ranker.fit(X, y, qid=qid)
        assert ranker.fit_result_.status == "overflowed"
        assert np.isfinite(ranker.predict(X)).all()

    def test_a_partitioned_measure(self, data):
        X, y, qid = data
        ranker = quick(n_networks=2, relaxation="probit").fit(X, y, qid=qid)
        assert_allclose(ranker.module_.weights.numpy(), [0.5, 0.5])
        assert ranker.score(X, y, qid=qid) > 0.6

    def test_export_to_onnx(self, data):
        pytest.importorskip("onnx")
        runtime = pytest.importorskip("onnxruntime")
        from sinkprop.export import to_onnx

        X, y, qid = data
        ranker = quick(n_networks=2).fit(X, y, qid=qid)
        session = runtime.InferenceSession(to_onnx(ranker).SerializeToString())
        inputs = {session.get_inputs()[0].name: X}
        (found, *_) = session.run(None, inputs)
        assert_allclose(np.ravel(found), ranker.predict(X), rtol=1e-4, atol=1e-5)

    @pytest.mark.parametrize("n", [0, 1.5, "two"])
    def test_wrong_numbers(self, data, n):
        X, y, qid = data
        with pytest.raises(ValueError, match="n_networks must be"):
            quick(n_networks=n).fit(X, y, qid=qid)


class TestInputNoise:
    def test_it_is_drawn_in_training_only_and_repeats(self, data):
        X, y, qid = data
        still, noisy, again = (quick(input_noise=s).fit(X, y, qid=qid) for s in (0, 0.5, 0.5))
        assert_array_equal(noisy.predict(X), again.predict(X))
        assert_array_equal(noisy.predict(X), noisy.predict(X))
        assert not np.allclose(noisy.predict(X), still.predict(X))

    def test_its_standard_deviation(self, data, monkeypatch):
        X, y, qid = data
        seen, scores = [], training._Trainer._scores

        def spied(trainer, features, offsets):
            seen.append(features.numpy().copy())
            return scores(trainer, features, offsets)

        monkeypatch.setattr(training._Trainer, "_scores", spied)
        batches = {}
        for noise in (0.0, 3.0):
            seen.clear()
            quick(input_noise=noise, max_epochs=1, network=MLP(())).fit(X, y, qid=qid)
            batches[noise] = np.concatenate(seen)
        added = batches[3.0] - batches[0.0]
        assert added.mean() == pytest.approx(0, abs=0.3)
        assert added.std() == pytest.approx(3, rel=0.1)

    @pytest.mark.parametrize("noise", [-1, math.nan, "much"])
    def test_wrong_values(self, data, noise):
        X, y, qid = data
        with pytest.raises(ValueError, match="input_noise must be"):
            quick(input_noise=noise).fit(X, y, qid=qid)


class TestStart:
    def test_cross_entropy_against_torch(self):
        rng = torch.Generator().manual_seed(0)
        sizes = [3, 1, 5]
        scores = torch.randn(9, generator=rng, dtype=torch.float64, requires_grad=True)
        gains = torch.tensor([1.0, 0, 3, 7, 0, 0, 1, 1, 0], dtype=torch.float64)
        weight = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
        offsets = torch.tensor([0, 3, 4, 9])
        expected = sum(
            w * torch.nn.functional.cross_entropy(s[None], (g / g.sum())[None])
            for w, s, g in zip(weight, scores.split(sizes), gains.split(sizes), strict=True)
        )
        found = gain_cross_entropy(scores, gains, offsets, weight)
        assert_allclose(found.item(), (expected / weight.sum()).item(), rtol=1e-12)
        (gradient,) = torch.autograd.grad(found, scores)
        (other,) = torch.autograd.grad(expected / weight.sum(), scores)
        assert_allclose(gradient.numpy(), other.numpy(), rtol=1e-12, atol=1e-15)

    def test_large_scores_and_no_gain(self):
        scores = torch.tensor([1e30, -1e30, 0.0], requires_grad=True)
        value = gain_cross_entropy(scores, torch.zeros(3), torch.tensor([0, 2, 3]))
        value.backward()
        assert value.item() == 0
        assert_array_equal(scores.grad.numpy(), 0)

    def test_equal_scores_part_at_once(self, data):
        # all scores are equal at first, where the gradient of the Gaussian kernel is 0
        X, y, qid = data

        def zeros(n_features):
            layer = torch.nn.Linear(n_features, 1)
            torch.nn.init.zeros_(layer.weight)
            return layer

        settings = {"network": zeros, "max_epochs": 1}
        stuck = quick(start_epochs=0, **settings).fit(X, y, qid=qid)
        assert_array_equal(stuck.module_.weight.detach().numpy(), 0)
        started = quick(**settings).fit(X, y, qid=qid).module_.weight.detach().numpy()
        assert (started[0, :2] > 0).all()  # the features that the labels depend on

    def test_the_recorded_loss_is_the_expected_gain(self, data):
        X, y, qid = data
        ranker = quick(max_epochs=1, network=MLP(()), optimizer=Adam(1e-12), validation_fraction=0)
        ranker.fit(X, y, qid=qid)
        found = sinkprop.expected_gain(
            ranker.predict(X), y, qid, gain="ndcg(discount=log2)", relaxation=sinkprop.SmoothedIndicator(1.0)
        )
        assert ranker.fit_result_.epochs[0].loss == pytest.approx(-found.value, rel=1e-5)

    @pytest.mark.parametrize(
        "options", [{"optimizer": LBFGS(3)}, {"relaxation": "probit"}, {"loss": "listnet"}]
    )
    def test_other_fits_have_no_start(self, data, options):
        X, y, qid = data
        a, b = (quick(start_epochs=n, **options).fit(X, y, qid=qid) for n in (0, 5))
        assert_array_equal(a.predict(X), b.predict(X))

    @pytest.mark.parametrize("gain", ["p@3", "rbp@0.8", "ndcg(gain=linear)", "table"])
    def test_every_gain(self, data, gain):
        X, y, qid = data
        if gain == "table":
            gain = sinkprop.RankLinear(table=lambda r, k: r / (1 + k + r))
        assert quick(gain=gain, max_epochs=30).fit(X, y, qid=qid).score(X, y, qid=qid) > 0.5

    def test_row_weights(self, data):
        X, y, qid = data
        weight = np.random.default_rng(0).random(len(y))
        assert quick(max_epochs=30).fit(X, y, qid=qid, sample_weight=weight).score(X, y, qid=qid) > 0.7
