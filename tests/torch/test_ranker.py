"""NeuralRanker as its users meet it."""

import copy
import dataclasses
import itertools
import os
import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from forking import ALL_STEPS, steps_of_a_fork
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import check_estimator

import sinkprop
from sinkprop import choose_permutation, doubly_stochastic, evaluate, expected_gain

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")

from torch import nn  # noqa: E402

from sinkprop.model_files import ModelFileError  # noqa: E402
from sinkprop.torch import LBFGS, MLP, Adam, SinkPropLoss  # noqa: E402
from sinkprop.torch.losses.baselines import approx_ndcg_loss  # noqa: E402
from sinkprop.torch.networks.layers import Dropout  # noqa: E402
from sinkprop.torch.neural import checkpoints, preparation, scoring  # noqa: E402
from sinkprop.torch.neural import training as fitting  # noqa: E402
from sinkprop.torch.neural.files import read_network, write_network  # noqa: E402
from sinkprop.torch.neural.preparation import Preparation  # noqa: E402
from sinkprop.torch.neural.scoring import NetworkOverflowError  # noqa: E402
from sinkprop.torch.ranker import NeuralRanker  # noqa: E402


def _stop(epoch):
    raise SystemExit


LOSSES = ["sinkprop", "listnet", "approxndcg", "lambdarank"]


NETWORK, ADAM = MLP((8,), dropout=0.0), Adam(1e-2)


def mlp(**changes):
    return dataclasses.replace(NETWORK, **changes)


def adam(**changes):
    return dataclasses.replace(ADAM, **changes)


def quick(loss="sinkprop", **options):
    settings = {"network": NETWORK, "optimizer": ADAM, "max_epochs": 6}
    return NeuralRanker(loss, **{**settings, **options})


def ranking_data(n_queries=30, seed=0, n_features=5):
    """Labels 0 to 2 by the first two features and noise; queries of 1 to 14 documents."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, n_queries)
    qid = np.repeat(np.arange(n_queries), sizes)
    X = rng.normal(size=(len(qid), n_features))
    return X, np.digitize(X @ [2, 1, 0, 0, 0][:n_features] + rng.normal(size=len(qid)), [0.5, 2]), qid


def curved_data(n_queries, seed):
    """Labels by a feature's distance from 0, which no linear score ranks by."""
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), 15)
    X = rng.normal(size=(len(qid), 3))
    return X, np.digitize(np.abs(X[:, 0]) + 0.2 * rng.normal(size=len(qid)), [0.5, 1.2]), qid


def same_weights(a, b):
    first, second = a.module_.state_dict(), b.module_.state_dict()
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


def untimed(ranker):
    return [dataclasses.replace(epoch, seconds=0.0) for epoch in ranker.fit_result_.epochs]


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def fitted(data):
    X, y, qid = data
    return quick(max_epochs=20).fit(X, y, qid=qid)


# What scikit-learn's checks ask and a ranker must not give.
EXPECTED = {
    "check_fit_score_takes_y": "score without qid is an error: it would take all rows for one query",
    "check_pipeline_consistency": "calls score without qid",
    "check_sample_weight_equivalence_on_dense_data": "a document of weight 0 still takes a rank",
}


class TestScikitLearn:
    @pytest.mark.filterwarnings("ignore:fit. no qid was given:UserWarning")
    def test_its_checks(self):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning)
            results = check_estimator(quick(max_epochs=3), on_fail=None, on_skip=None)
        failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
        assert failed.keys() == EXPECTED.keys(), failed
        assert sum(r["status"] == "passed" for r in results) >= 40

    def test_grid_search_with_routed_queries(self, data):
        from sklearn import config_context
        from sklearn.model_selection import GridSearchCV, GroupKFold

        X, y, qid = data
        with config_context(enable_metadata_routing=True):
            search = GridSearchCV(
                quick(),
                {"network": [MLP(()), MLP((4,))], "optimizer": [Adam(0.01), LBFGS(2)]},
                cv=GroupKFold(3),
                error_score="raise",
            )
            search.fit(X, y, qid=qid, groups=qid)
        assert search.best_estimator_.rank(X, qid=qid).min() == 1
        assert len(search.cv_results_["params"]) == 4
        assert search.best_params_["network"] in (MLP(()), MLP((4,)))

    def test_clones_share_nothing_with_the_users_module(self, data):
        X, y, qid = data
        module = nn.Linear(5, 1)
        before = copy.deepcopy(module.state_dict())
        ranker = quick(network=module)
        assert ranker.get_params()["network"] is module
        again = clone(ranker)
        assert again.network is not module
        again.fit(X, y, qid=qid)
        ranker.fit(X, y, qid=qid)
        assert ranker.network is module
        assert ranker.module_ is not module
        assert all(torch.equal(before[name], x) for name, x in module.state_dict().items())
        assert not torch.equal(ranker.module_.weight, module.weight)
        same_weights(ranker, again)
        assert module.training

    def test_pickling(self, fitted, data):
        X, _, _ = data
        again = pickle.loads(pickle.dumps(fitted))
        assert_array_equal(again.predict(X), fitted.predict(X))
        assert_array_equal(copy.deepcopy(fitted).predict(X), fitted.predict(X))

    def test_parameters_are_set_by_name(self):
        assert quick().set_params(optimizer=Adam(0.5)).optimizer.learning_rate == 0.5
        with pytest.raises(ValueError, match="Invalid parameter"):
            quick().set_params(optimiser=Adam(0.5))


@pytest.mark.parametrize("loss", LOSSES)
def test_it_learns_what_no_linear_score_ranks(loss):
    train, test = curved_data(60, 1), curved_data(40, 2)
    settings = {"max_epochs": 30, "optimizer": adam(batch_documents=150)}
    ranker = quick(loss, network=mlp(hidden=(32,)), **settings).fit(*train[:2], qid=train[2])
    linear = quick(loss, network=mlp(hidden=()), **settings).fit(*train[:2], qid=train[2])
    assert ranker.score(*test[:2], qid=test[2]) > 0.9
    assert linear.score(*test[:2], qid=test[2]) < 0.75
    losses = [epoch.loss for epoch in ranker.fit_result_.epochs]
    assert losses[-1] < losses[0]


class TestAgainstOracles:
    def test_a_linear_module_by_lbfgs_reaches_scipys_optimum(self):
        X, y, qid = ranking_data(12, 3)
        penalty = 0.1
        torch.manual_seed(0)
        module = nn.Linear(5, 1, bias=False)
        ranker = NeuralRanker(
            network=module,
            input_transform="none",
            normalization="none",
            optimizer=LBFGS(40, weight_decay=penalty),
            max_epochs=8,
            sigma=3.0,
            validation_fraction=0,
            dtype="float64",
            relaxation=sinkprop.SmoothedIndicator(accuracy="exact"),
        ).fit(X, y, qid=qid)

        def loss(w):
            relaxation = sinkprop.SmoothedIndicator(3.0, accuracy="exact")
            r = expected_gain(X @ w, y, qid, gain="ndcg(discount=log2)", relaxation=relaxation)
            return penalty / 2 * w @ w - r.value, penalty * w - X.T @ r.gradient

        w = module.weight.detach().numpy().astype(np.float64)[0]
        best = minimize(loss, w, jac=True, method="BFGS", options={"gtol": 1e-10, "maxiter": 500})
        found = ranker.module_.weight.detach().numpy()[0]
        assert_allclose(found, best.x, rtol=1e-5, atol=1e-6)
        assert ranker.fit_result_.epochs[-1].loss == pytest.approx(best.fun, rel=1e-9)
        assert ranker.sigma_ == 3.0

    @pytest.mark.parametrize("start", [0, 2.0])
    def test_adam_is_torchs(self, data, start):
        """Steps of a fit with fixed minibatches against AdamW on the same loss."""
        X, y, qid = data
        module = MLP((4,), dropout=0)(5).double()
        settings = {"input_transform": "none", "normalization": "none", "dtype": "float64"}
        ranker = NeuralRanker(
            network=copy.deepcopy(module),
            optimizer=Adam(0.02, weight_decay=0.1, schedule="cosine", clip_norm=0.05, batch_documents=10**6),
            max_epochs=7,
            sigma=(2.0, 0.5),
            start_epochs=start,
            validation_fraction=0,
            **settings,
        ).fit(X, y, qid=qid)
        matrices = [p for p in module.parameters() if p.ndim > 1]
        vectors = [p for p in module.parameters() if p.ndim == 1]
        groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=0.02)
        offsets = torch.tensor(np.concatenate([[0], np.cumsum(np.bincount(qid))]))
        losses = []
        for i in range(7):
            for group in optimizer.param_groups:
                group["lr"] = 0.02 * 0.5 * (1 + np.cos(np.pi * i / 7))
            optimizer.zero_grad()
            sigma = 2.0 * 0.25 ** (i / 6)
            loss = SinkPropLoss(relaxation=sinkprop.SmoothedIndicator(sigma))
            scores = module(torch.from_numpy(X))
            value = loss(scores, torch.from_numpy(y), offsets=offsets)
            added = 0.0
            for q in range(len(offsets) - 1):
                gains = torch.from_numpy(2.0 ** y[qid == q] - 1)
                if start and gains.any():
                    log_p = torch.log_softmax(scores[torch.from_numpy(qid == q)], 0)
                    added = added - (gains / gains.sum() * log_p).sum() / (len(offsets) - 1)
            (value + np.exp(-i / start) * added if start else value).backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), 0.05)
            optimizer.step()
            losses.append(value.item())
        assert_allclose([epoch.loss for epoch in ranker.fit_result_.epochs], losses, rtol=1e-6)
        assert_allclose([epoch.sigma for epoch in ranker.fit_result_.epochs], np.geomspace(2, 0.5, 7))
        for a, b in zip(ranker.module_.parameters(), module.parameters(), strict=True):
            assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("loss", LOSSES)
    def test_minibatches_and_shards_add_up_to_the_gradient_of_all(self, loss, data, monkeypatch):
        X, y, qid = data
        weight = np.random.default_rng(0).uniform(0.5, 2, 30)
        found = {}
        for budget, shard in itertools.product((10**6, 40, 1), (10**6, 25)):
            gradients = []
            with monkeypatch.context() as patch:
                patch.setattr(fitting, "_SHARD_DOCUMENTS", shard)
                # no step is made, so all gradients are at the same weights
                patch.setattr(
                    fitting.AdamSteps, "step", lambda _, g, rate, to=gradients: to.append(g.clone())
                )
                ranker = quick(
                    loss,
                    optimizer=adam(batch_documents=budget),
                    dtype="float64",
                    max_epochs=1,
                    validation_fraction=0,
                )
                ranker.fit(X, y, qid=qid, query_weight=weight)
            found[budget, shard] = torch.stack(gradients).mean(dim=0).numpy()
            assert len(gradients) == {10**6: 1, 40: 7, 1: 30}.get(budget, 0) or budget == 40
            assert ranker.fit_result_.epochs[0].loss == pytest.approx(
                found.setdefault("loss", ranker.fit_result_.epochs[0].loss), rel=1e-9
            )
        whole = found[10**6, 10**6]
        assert np.abs(whole).max() > 1e-3
        for key, gradient in found.items():
            if key != "loss":
                assert_allclose(gradient, whole, rtol=1e-6, atol=1e-9)

    def test_a_querys_weight_is_its_repetition(self, data):
        X, y, qid = data
        twice = np.concatenate([np.arange(len(y)), np.flatnonzero(qid % 2 == 0)])
        ids = np.concatenate([qid, qid[qid % 2 == 0] + 100])
        options = {
            "normalization": "none",
            "optimizer": adam(batch_documents=10**6),
            "dtype": "float64",
            "validation_fraction": 0,
        }
        weighted = quick(**options).fit(
            X, y, qid=qid, query_weight=np.where(np.arange(30) % 2 == 0, 2.0, 1.0)
        )
        repeated = quick(**options).fit(X[twice], y[twice], qid=ids)
        assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-5, atol=1e-6)

    def test_a_query_of_weight_zero_does_not_matter(self, data):
        X, y, qid = data
        kept = qid % 3 > 0
        vali = ranking_data(12, 9)
        more = {"eval_set": [vali[:2]], "eval_qid": [vali[2]]}
        weight = {q: float(q % 3 > 0) for q in range(30)}
        a = quick(normalization="none").fit(X, np.where(kept, y, 2 - y), qid=qid, query_weight=weight, **more)
        b = quick(normalization="none").fit(X[kept], y[kept], qid=qid[kept], **more)
        same_weights(a, b)
        with pytest.raises(ValueError, match="sum above 0"):
            quick().fit(X, y, qid=qid, query_weight=np.zeros(30), **more)

    def test_row_weights_reach_the_loss(self, data):
        X, y, qid = data
        weight = np.where(X[:, 2] > 0, 0.01, 1.0)
        options = {"network": mlp(hidden=()), "max_epochs": 30, "validation_fraction": 0}
        plain = quick(**options).fit(X, y, qid=qid)
        weighted = quick(**options).fit(X, y, qid=qid, sample_weight=weight)
        third = [m.module_.linear.weight[0, 2].item() for m in (plain, weighted)]
        assert third[1] < third[0] - 0.1
        with pytest.raises(ValueError, match="does not take sample_weight"):
            quick("listnet").fit(X, y, qid=qid, sample_weight=weight)
        same_weights(
            quick("listnet").fit(X, y, qid=qid, sample_weight=np.full(len(y), 2.0)),
            quick("listnet").fit(X, y, qid=qid),
        )

    def test_the_features_are_transformed_then_normalized(self, data):
        X, y, qid = data
        X = np.sign(X) * np.expm1(3 * np.abs(X))
        Z = np.sign(X) * np.log1p(np.abs(X))
        Z = (Z - Z.mean(axis=0)) / Z.std(axis=0)
        options = {"input_transform": "none", "normalization": "none", "validation_fraction": 0}
        a = quick(validation_fraction=0).fit(X, y, qid=qid)
        b = quick(**options).fit(Z, y, qid=qid)
        assert_allclose(a.predict(X), b.predict(Z), rtol=1e-4, atol=1e-5)
        rows = Preparation("log1p", a.scaling_, torch.float64)(X).numpy()
        assert_allclose(rows, Z, rtol=1e-12, atol=1e-12)

    def test_by_query_the_transform_comes_first_as_well(self, data):
        X, y, qid = data
        X = np.sign(X) * np.expm1(3 * np.abs(X))
        Z = np.sign(X) * np.log1p(np.abs(X))
        a = quick(normalization="query").fit(X, y, qid=qid)
        b = quick(normalization="query", input_transform="none").fit(Z, y, qid=qid)
        assert_array_equal(a.predict(X, qid=qid), b.predict(Z, qid=qid))
        with pytest.raises(ValueError, match="predict needs qid="):
            a.predict(X)


class TestChoice:
    def test_the_best_epoch_by_the_validation_queries_is_kept(self, data):
        X, y, qid = data
        vali = ranking_data(12, 9)
        ranker = quick(max_epochs=25).fit(X, y, qid=qid, eval_set=[vali[:2]], eval_qid=[vali[2]])
        r = ranker.fit_result_
        assert (r.criterion, r.validated_on) == ("ndcg@1-10", "12 validation queries")
        (chosen,) = (epoch for epoch in r.epochs if epoch.chosen)
        assert chosen.criterion == max(epoch.criterion for epoch in r.epochs)
        assert r.chosen == chosen
        names = [f"ndcg@{k}" for k in range(1, 11)]
        by_hand = np.mean(list(evaluate(vali[1], ranker.predict(vali[0]), vali[2], metrics=names).values()))
        assert chosen.criterion == pytest.approx(by_hand, abs=1e-12)
        assert ranker.sigma_ == chosen.sigma == ranker.relaxation_.sigma
        assert ranker.n_rows_ == len(y)

    def test_it_stops_early(self, data):
        X, y, qid = data
        ranker = quick(max_epochs=200, patience=3).fit(X, y, qid=qid)
        r = ranker.fit_result_
        assert r.status == "stopped early"
        assert "best epoch" in r.message
        assert r.validated_on == "6 queries held out"
        best = next(i for i, epoch in enumerate(r.epochs) if epoch.chosen)
        assert len(r.epochs) == best + 1 + 3 < 200

    def test_without_validation_queries_the_last_epoch_is_taken(self, data):
        X, y, qid = data
        ranker = quick(validation_fraction=0).fit(X, y, qid=qid)
        r = ranker.fit_result_
        assert (r.status, r.criterion, r.validated_on) == ("finished", "", "")
        assert r.epochs[-1].chosen
        assert all(np.isnan(epoch.criterion) for epoch in r.epochs)
        assert r.message == "Every epoch was run."

    def test_the_criterion_may_be_named(self, data):
        X, y, qid = data
        vali = ranking_data(12, 9)
        more = {"eval_set": [vali[:2]], "eval_qid": [vali[2]]}
        ranker = quick(criterion="map").fit(X, y, qid=qid, **more)
        best = evaluate(vali[1], ranker.predict(vali[0]), vali[2], metrics=["map"])["map"]
        assert ranker.fit_result_.criterion == "map"
        assert ranker.fit_result_.chosen.criterion == pytest.approx(best, abs=1e-12)
        two = quick(criterion=("ndcg@5", "map")).fit(X, y, qid=qid, **more)
        assert two.fit_result_.criterion == "ndcg@5,map"
        assert quick(gain="p@5").fit(X, y, qid=qid, **more).fit_result_.criterion == "p@5"

    def test_epochs_are_told_as_they_end(self, data):
        X, y, qid = data
        seen = []
        ranker = quick(on_epoch=seen.append).fit(X, y, qid=qid)
        assert seen == [dataclasses.replace(epoch, chosen=False) for epoch in ranker.fit_result_.epochs]

    def test_one_query_validates_itself(self, data):
        X, y, _ = data
        ranker = quick().fit(X[:9], y[:9], qid=[1] * 9)
        assert ranker.fit_result_.validated_on == "the one training query itself"


class TestRelaxations:
    @pytest.mark.parametrize("relaxation", ["laplace", "logit-logistic", "probit", "beta"])
    def test_every_relaxation_learns(self, relaxation):
        X, y, qid = ranking_data(40, 3)
        ranker = quick(relaxation=relaxation, max_epochs=25).fit(X, y, qid=qid)
        chance = evaluate(y, np.zeros(len(y)), qid, "ndcg@5")["ndcg@5"]
        assert ranker.set_params(metric="ndcg@5").score(X, y, qid=qid) > chance + 0.15
        ranks = ranker.rank(X, qid=qid)
        for q in (0, 7):
            assert sorted(ranks[qid == q]) == list(range(1, (qid == q).sum() + 1))
        if ranker.relaxation_.width == 2:
            assert ranker.sigma_ is None
            theta = ranker.module_(Preparation("log1p", ranker.scaling_, torch.float32)(X[qid == 2]))
            assert theta.shape == ((qid == 2).sum(), 2)
            Pi = doubly_stochastic(theta.detach().double().numpy(), relaxation=ranker.relaxation_)
            assert_array_equal(
                np.argsort(ranks[qid == 2]), choose_permutation(Pi, method="shortcut", top=200)
            )
            assert np.corrcoef(ranker.predict(X[qid == 2]), -ranks[qid == 2])[0, 1] > 0.5

    def test_a_loss_of_ones_own(self, data):
        X, y, qid = data

        def pairwise(scores, labels, *, offsets, query_weight=None):
            assert offsets[-1] == len(scores) == len(labels)
            parts = [slice(a, b) for a, b in itertools.pairwise(offsets.tolist())]
            values = [((scores[p] - labels[p].to(scores.dtype)) ** 2).mean() for p in parts]
            return torch.stack(values).mean()

        ranker = quick(pairwise, max_epochs=30).fit(X, y, qid=qid)
        assert ranker.sigma_ is None
        assert ranker.relaxation_ is None
        assert ranker.fit_result_.epochs[-1].loss < ranker.fit_result_.epochs[0].loss / 1.5

    def test_a_loss_object_is_used_as_it_is(self, data):
        X, y, qid = data
        a = quick(SinkPropLoss("ndcg", sinkprop.SmoothedIndicator(0.5))).fit(X, y, qid=qid)
        b = quick(sigma=0.5, start_epochs=0).fit(X, y, qid=qid)
        same_weights(a, b)
        assert a.sigma_ == 0.5
        wide = quick(SinkPropLoss(relaxation="probit")).fit(X, y, qid=qid)
        assert wide.relaxation_.width == 2

    @pytest.mark.parametrize(
        ("loss", "said"),
        [
            (lambda s, y, **_: s, "must return one number that depends on the scores"),
            (lambda s, y, **_: torch.tensor(1.0), "must return one number that depends on the scores"),
            (lambda s, y, **_: 1.0, "must return one number that depends on the scores"),
            ("listnt", "loss must be 'sinkprop', 'listnet'"),
            (3, "loss must be a name or a function"),
        ],
    )
    def test_wrong_losses_are_errors(self, loss, said, data):
        X, y, qid = data
        with pytest.raises(ValueError, match=said):
            quick(loss).fit(X, y, qid=qid)


class Context(nn.Module):
    """Each row's score beside the mean of its query's."""

    def __init__(self, n_features):
        super().__init__()
        self.linear = nn.Linear(n_features, 1)

    def forward(self, rows, offsets):
        sizes = offsets.diff()
        codes = torch.repeat_interleave(torch.arange(len(sizes)), sizes)
        mean = torch.zeros(len(sizes), rows.shape[1], dtype=rows.dtype).index_add_(0, codes, rows)
        return self.linear(rows - (mean / sizes[:, None])[codes])


class TestModules:
    def test_a_function_makes_the_module(self, data):
        X, y, qid = data
        made = []

        def make(n_features):
            made.append(n_features)
            return nn.Sequential(nn.Linear(n_features, 4), nn.Tanh(), nn.Linear(4, 1))

        ranker = quick(network=make).fit(X, y, qid=qid)
        assert made == [5]
        assert ranker.predict(X).shape == (len(y),)
        assert not ranker.module_.training
        same_weights(ranker, quick(network=make).fit(X, y, qid=qid))

    def test_a_lazy_module_gets_its_shape_from_the_data(self, data):
        X, y, qid = data
        ranker = quick(network=nn.LazyLinear(1)).fit(X, y, qid=qid)
        assert ranker.module_.weight.shape == (1, 5)

    def test_a_module_that_looks_at_the_whole_query(self, data):
        X, y, qid = data
        ranker = quick(network=Context, optimizer=adam(batch_documents=30)).fit(X, y, qid=qid)
        with pytest.raises(ValueError, match="predict needs qid="):
            ranker.predict(X)
        scores = ranker.predict(X, qid=qid)
        order = np.random.default_rng(0).permutation(len(y))
        assert_allclose(ranker.predict(X[order], qid=qid[order]), scores[order], atol=1e-6)
        alone = ranker.predict(X[qid == 3], qid=qid[qid == 3])
        assert_allclose(alone, scores[qid == 3], atol=1e-6)
        assert abs(alone.mean() - ranker.module_.linear.bias.item()) < 1e-5

    @pytest.mark.parametrize(
        ("module", "said"),
        [
            (nn.Linear(5, 3), r"scores of shape \(\d+,\) or \(\d+, 1\) for \d+ rows; it returned a tensor"),
            (nn.Flatten(0), r"scores of shape"),
            (nn.Linear(7, 1), r"network must take rows \(N, 5\); Linear says: mat1 and mat2"),
            (lambda n: 7, "must return an nn.Module"),
            (nn.Identity(), "scores of shape"),
            (lambda n: nn.Linear(n, 1).requires_grad_(False), "has none"),
            (
                "mlp",
                r"network must be MLP\(\.\.\.\), ListTransformer.*, a function .*got 'mlp'",
            ),
            (MLP, r"network must be MLP\(\.\.\.\).*got <class"),
            (nn.LSTM(5, 1), "scores of shape"),
        ],
    )
    def test_wrong_modules_are_errors(self, module, said, data):
        X, y, qid = data
        with pytest.raises(ValueError, match=said):
            quick(network=module).fit(X, y, qid=qid)

    def test_two_outputs_for_a_partitioned_measure(self, data):
        X, y, qid = data
        ranker = quick(network=nn.Linear(5, 2), relaxation="probit").fit(X, y, qid=qid)
        assert ranker.rank(X, qid=qid).min() == 1
        with pytest.raises(ValueError, match=r"scores of shape \(\d+, 2\)"):
            quick(network=nn.Linear(5, 1), relaxation="probit").fit(X, y, qid=qid)

    def test_frozen_parameters_stay(self, data):
        X, y, qid = data
        module = nn.Sequential(nn.Linear(5, 3), nn.Linear(3, 1))
        module[0].requires_grad_(False)
        ranker = quick(network=module).fit(X, y, qid=qid)
        assert torch.equal(ranker.module_[0].weight, module[0].weight)
        assert not torch.equal(ranker.module_[1].weight, module[1].weight)

    def test_the_default_network(self):
        network = MLP((6, 4), dropout=0.5, layer_normalization="batch")(7, n_outputs=2)
        assert network(torch.zeros(3, 7)).shape == (3, 2)
        assert network(torch.zeros(1, 7)).shape == (1, 2)  # one row has no spread
        kinds = [type(layer).__name__ for layer in network.layers]
        assert kinds == ["Linear", "BatchNorm", "ReLU", "Dropout"] * 2 + ["Linear"]
        plain = MLP(())(3)
        rows = torch.randn(4, 3)
        assert torch.equal(plain(rows), plain.linear(rows).squeeze(1))

    def test_dropout_is_torchs_with_a_generator_of_its_own(self):
        dropout, x = Dropout(0.25), torch.ones(10_000)
        with fitting.drawing_from(np.random.default_rng(3)):
            first = dropout(x)
        with fitting.drawing_from(np.random.default_rng(3)):
            assert torch.equal(dropout(x), first)
        assert_allclose(first.unique(), [0, 1 / 0.75], rtol=1e-6)
        assert first.mean().item() == pytest.approx(1, abs=0.03)
        dropout.eval()
        assert dropout(x) is x


NETWORKS = {
    "plain": {},
    "dropout": {"network": mlp(dropout=0.3)},
    "batch normalization": {"network": mlp(layer_normalization="batch")},
    "layer normalization": {"network": mlp(layer_normalization="layer", activation="gelu")},
    "torch's dropout": {
        "network": lambda n: nn.Sequential(nn.Linear(n, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 1))
    },
    "lbfgs": {"optimizer": LBFGS(3), "network": mlp(dropout=0.3), "max_epochs": 4},
}


class TestRepetition:
    @pytest.mark.parametrize("name", NETWORKS)
    def test_the_same_bits_for_any_number_of_threads(self, name, data, monkeypatch):
        X, y, qid = data
        monkeypatch.setattr(fitting, "_SHARD_DOCUMENTS", 60)
        monkeypatch.setattr(scoring, "_CHUNK", 100)
        torch.manual_seed(5)
        first = quick(**NETWORKS[name], n_threads=1).fit(X, y, qid=qid)
        torch.manual_seed(6)
        again = quick(**NETWORKS[name], n_threads=3).fit(X, y, qid=qid)
        same_weights(first, again)
        assert_array_equal(first.predict(X), again.predict(X))
        assert untimed(first) == untimed(again)

    def test_what_draws_from_torchs_generator_is_not_run_beside_itself(self, data, monkeypatch):
        X, y, qid = data
        monkeypatch.setattr(fitting, "_SHARD_DOCUMENTS", 60)
        found = {}
        for name, settings in NETWORKS.items():
            seen = []
            real = fitting._Trainer._pass

            def watched(self, *given, real=real, seen=seen):
                value = real(self, *given)
                seen.append(self._parallel)
                return value

            monkeypatch.setattr(fitting._Trainer, "_pass", watched)
            if name != "lbfgs":
                quick(**{**settings, "max_epochs": 1}, n_threads=2).fit(X, y, qid=qid)
                found[name] = seen[0]
            monkeypatch.setattr(fitting._Trainer, "_pass", real)
        assert found == {
            "plain": True,
            "dropout": True,
            "batch normalization": False,
            "layer normalization": True,
            "torch's dropout": False,
        }

    def test_torch_is_left_as_it_was(self, data):
        X, y, qid = data
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        torch.manual_seed(7)
        state = torch.get_rng_state()
        try:
            ranker = quick(**NETWORKS["torch's dropout"]).fit(X, y, qid=qid)
            ranker.predict(X)
            assert torch.get_num_threads() == 2
            assert torch.equal(torch.get_rng_state(), state)
            with pytest.raises(ValueError, match="one number"):
                quick(lambda s, y, **_: s).fit(X, y, qid=qid)
            assert torch.get_num_threads() == 2
        finally:
            torch.set_num_threads(before)
        for mode in (torch.no_grad, torch.inference_mode):
            with mode():
                same_weights(quick(**NETWORKS["torch's dropout"]).fit(X, y, qid=qid), ranker)

    def test_the_seed_decides(self, data):
        X, y, qid = data
        a, b = (quick(random_state=seed).fit(X, y, qid=qid) for seed in (0, 1))
        assert not torch.equal(a.module_.linear.weight, b.module_.linear.weight)
        quick(random_state=None).fit(X, y, qid=qid)
        quick(random_state=np.random.RandomState(0)).fit(X, y, qid=qid)

    def test_features_prepared_minibatch_by_minibatch_are_the_same(self, data, monkeypatch):
        X, y, qid = data
        first = quick().fit(X, y, qid=qid)
        monkeypatch.setattr(preparation, "_KEPT_BYTES", 0)
        same_weights(quick().fit(X, y, qid=qid), first)

    def test_single_and_double_precision_features(self, data):
        X, y, qid = data
        X = X.astype(np.float32)
        same_weights(quick().fit(X, y, qid=qid), quick().fit(X.astype(np.float64), y, qid=qid))
        exact = quick(dtype="float64").fit(X, y, qid=qid)
        assert exact.module_.linear.weight.dtype == torch.float64

    def test_rows_in_any_order_and_ids_of_any_kind(self, data):
        X, y, qid = data
        ranks = quick().fit(X, y, qid=qid).rank(X, qid=qid)
        names = np.array([f"query {q}" for q in qid])
        first = np.array([np.flatnonzero(qid == q)[0] for q in np.unique(qid)])
        order = np.argsort(np.arange(len(y)) - first[qid], kind="stable")  # all first rows, then the second
        again = quick().fit(X[order], y[order], qid=names[order].tolist())
        assert_array_equal(again.rank(X, qid=names), ranks)
        assert_array_equal(again.rank(X[order], qid=names[order]), ranks[order])
        sizes = np.bincount(qid)
        assert_array_equal(quick().fit(X, y, group=sizes).rank(X, group=sizes), ranks)


class Interrupt:
    """An `on_epoch` that interrupts after some epochs."""

    def __init__(self, after):
        self.after = after

    def __call__(self, epoch):
        self.after -= 1
        if self.after == 0:
            raise KeyboardInterrupt


def interrupting(monkeypatch, at):
    """Make the `at`-th gradient an interrupt."""
    calls = 0
    real = fitting._Trainer._gradient

    def counted(self, *args):
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return real(self, *args)

    monkeypatch.setattr(fitting._Trainer, "_gradient", counted)


class TestInterruptAndResume:
    def test_an_interrupt_keeps_the_best_network_so_far(self, monkeypatch, data):
        X, y, qid = data
        whole = quick().fit(X, y, qid=qid)
        interrupting(monkeypatch, 14)
        with pytest.warns(RuntimeWarning, match="interrupted; the network is the best of the epochs"):
            ranker = quick(optimizer=adam(batch_documents=50)).fit(X, y, qid=qid)
        assert ranker.fit_result_.status == "interrupted"
        assert 1 <= len(ranker.fit_result_.epochs) < len(whole.fit_result_.epochs)
        assert ranker.fit_result_.chosen
        assert ranker.score(X, y, qid=qid) > 0

    def test_an_interrupt_before_there_is_a_network_is_passed_on(self, monkeypatch, data):
        X, y, qid = data
        interrupting(monkeypatch, 1)
        ranker = quick()
        with pytest.raises(KeyboardInterrupt):
            ranker.fit(X, y, qid=qid)
        with pytest.raises(NotFittedError):
            ranker.predict(X)

    @pytest.mark.parametrize("name", NETWORKS)
    @pytest.mark.parametrize("at", [2, 6, 10])
    def test_a_fit_resumes_to_the_same_bits(self, monkeypatch, tmp_path, data, name, at):
        X, y, qid = data
        path = tmp_path / "fit.checkpoint"
        settings = {"optimizer": adam(batch_documents=100, schedule="cosine"), **NETWORKS[name]}
        whole = quick(**settings).fit(X, y, qid=qid)
        with monkeypatch.context() as patch:
            interrupting(patch, at)
            try:
                quick(**settings, checkpoint=path).fit(X, y, qid=qid)
            except KeyboardInterrupt:
                assert not path.exists()
            except RuntimeWarning:
                pass
        torch.manual_seed(at)
        resumed = quick(**settings, checkpoint=path, n_threads=2).fit(X, y, qid=qid)
        same_weights(resumed, whole)
        assert untimed(resumed) == untimed(whole)
        assert resumed.fit_result_.status == whole.fit_result_.status
        assert not path.exists()

    @pytest.mark.parametrize("epochs", [1, 3, 5])
    def test_finished_epochs_are_not_run_again(self, tmp_path, data, epochs):
        X, y, qid = data
        path = tmp_path / "fit.checkpoint"
        whole = quick().fit(X, y, qid=qid)
        with pytest.warns(RuntimeWarning, match="interrupted"):
            quick(checkpoint=path, on_epoch=Interrupt(epochs)).fit(X, y, qid=qid)
        assert len(read_network(path)[0].state["epochs"]) == epochs
        rest = []
        resumed = quick(checkpoint=path, on_epoch=rest.append).fit(X, y, qid=qid)
        assert len(rest) == len(whole.fit_result_.epochs) - epochs
        same_weights(resumed, whole)

    def test_a_process_that_is_killed_leaves_a_checkpoint(self, tmp_path, data, monkeypatch):
        X, y, qid = data
        path = tmp_path / "fit.checkpoint"

        def killed(epoch):
            raise SystemExit

        with pytest.raises(SystemExit):
            quick(checkpoint=path, on_epoch=killed).fit(X, y, qid=qid)
        assert len(read_network(path)[0].state["epochs"]) == 1
        same_weights(quick(checkpoint=path).fit(X, y, qid=qid), quick().fit(X, y, qid=qid))

    def test_a_checkpoint_of_another_fit_is_an_error_and_stays(self, tmp_path, data):
        X, y, qid = data
        path = tmp_path / "fit.checkpoint"
        with pytest.warns(RuntimeWarning, match="interrupted"):
            quick(checkpoint=path, on_epoch=Interrupt(2)).fit(X, y, qid=qid)
        before = path.read_bytes()
        for change in (
            {"optimizer": adam(learning_rate=0.5)},
            {"optimizer": adam(schedule="cosine")},
            {"optimizer": LBFGS()},
            {"network": mlp(dropout=0.1)},
            {"gain": "p@5"},
            {"random_state": 5},
            {"normalization": "none"},
            {"network": NETWORK(5)},
            {"loss": "listnet"},
            {"sigma": 0.5},
            {"criterion": "map"},
        ):
            with pytest.raises(ModelFileError, match="other data or parameters"):
                quick(checkpoint=path, **change).fit(X, y, qid=qid)
        for other in ((X + 1, y, qid), (X, 2 - y, qid), (X, y, qid // 2)):
            with pytest.raises(ModelFileError, match="other data or parameters"):
                quick(checkpoint=path).fit(*other[:2], qid=other[2])
        assert path.read_bytes() == before
        model, tensors = read_network(path)
        name = next(name for name in tensors if name.startswith("network."))
        for state, changed in (
            ({}, {name: torch.zeros(3)}),
            ({}, {"mean": torch.zeros(1)}),
            ({"best": 2}, {}),
            ({"steps": -1}, {}),
            ({"epochs": []}, {}),
            ({"epochs": [{**model.state["epochs"][0], "loss": "text"}] * 2}, {}),
            ({"epochs": [{"other": 1}]}, {}),
        ):
            write_network(path, model.kind, model.state | state, tensors | changed)
            with pytest.raises(ModelFileError, match="not a checkpoint of this fit"):
                quick(checkpoint=path).fit(X, y, qid=qid)
        path.write_bytes(before[:-5])
        with pytest.raises(ModelFileError, match="damaged"):
            quick(checkpoint=path).fit(X, y, qid=qid)

    def test_a_checkpoint_knows_the_settings_of_a_loss(self, tmp_path, data):
        X, y, qid = data
        path = tmp_path / "fit"
        with pytest.raises(SystemExit):
            quick(partial(approx_ndcg_loss, alpha=1.0), checkpoint=path, on_epoch=_stop).fit(X, y, qid=qid)
        with pytest.raises(ModelFileError, match="other data or parameters"):
            quick(partial(approx_ndcg_loss, alpha=2.0), checkpoint=path).fit(X, y, qid=qid)
        quick(partial(approx_ndcg_loss, alpha=1.0), checkpoint=path).fit(X, y, qid=qid)
        assert not path.exists()

    def test_a_checkpoint_is_a_small_part_of_the_work(self, tmp_path, data, monkeypatch):
        X, y, qid = data
        writes = []
        real = checkpoints.write_network
        monkeypatch.setattr(checkpoints, "write_network", lambda *a, **k: (writes.append(1), real(*a, **k)))
        made = quick(checkpoint=tmp_path / "fit", max_epochs=60, patience=60).fit(X, y, qid=qid)
        assert 1 <= len(writes) < len(made.fit_result_.epochs) / 2


class TestOverflow:
    def test_scores_that_overflow_at_once_are_an_error_that_leaves_the_ranker(self, data, fitted):
        X, y, qid = data
        ranker = copy.deepcopy(fitted).set_params(optimizer=Adam(1e30, batch_documents=20))
        with pytest.raises(
            NetworkOverflowError, match=r"NaN or infinite in epoch 1.*learning_rate \(1e\+30\)"
        ):
            ranker.fit(X, y, qid=qid)
        assert_array_equal(ranker.predict(X), fitted.predict(X))

    def test_scores_that_overflow_later_leave_the_best_network_before(self, data):
        X, y, qid = data
        epochs = 0

        def spoil(epoch):
            nonlocal epochs
            epochs += 1
            if epochs == 3:
                ranker.loss.factor = float("nan")

        class Spoiled(SinkPropLoss):
            factor = 1.0

            def forward(self, *args, **more):
                return super().forward(*args, **more) * self.factor

        ranker = quick(Spoiled(), on_epoch=spoil, max_epochs=10)
        with pytest.raises(NetworkOverflowError, match="best network of the 3 epochs before"):
            ranker.fit(X, y, qid=qid)
        assert ranker.fit_result_.status == "overflowed"
        assert "overflowed" in ranker.fit_result_.message
        assert np.isfinite(ranker.predict(X)).all()
        assert ranker.score(X, y, qid=qid) > 0

    def test_features_too_large_for_the_precision(self, data):
        X, y, qid = data
        X = X.copy()
        X[3, 1] = 1e300
        with pytest.raises(ValueError, match="row 3, column 1, which is too large for float32"):
            quick(input_transform="none", normalization="none").fit(X, y, qid=qid)
        quick().fit(X, y, qid=qid)

    @pytest.mark.parametrize("learning_rate", [1e-8, 1.0, 100.0])
    @pytest.mark.parametrize("relaxation", ["gaussian", "laplace", "beta"])
    def test_extreme_learning_rates_end_in_finite_scores_or_in_that_error(
        self, learning_rate, relaxation, data
    ):
        X, y, qid = data
        try:
            optimizer = Adam(learning_rate, batch_documents=20)
            ranker = quick(optimizer=optimizer, relaxation=relaxation).fit(X, y, qid=qid)
        except NetworkOverflowError:
            assert learning_rate == 100.0
        else:
            assert np.isfinite(ranker.predict(X)).all()


class TestAwkwardCases:
    @pytest.mark.parametrize("loss", LOSSES)
    @pytest.mark.parametrize("labels", ["none relevant", "all equal", "one relevant"])
    def test_queries_that_say_little(self, loss, labels):
        X, y, qid = ranking_data(8, 3)
        given = {"none relevant": 0 * y, "all equal": 0 * y + 2, "one relevant": np.eye(1, len(y))[0]}[labels]
        ranker = quick(loss).fit(X, given, qid=qid)
        assert np.isfinite(ranker.predict(X)).all()
        assert np.isfinite(ranker.score(X, given, qid=qid))

    @pytest.mark.parametrize("normalization", [None, "batch", "layer"])
    def test_one_document_and_one_query(self, data, normalization):
        X, y, _ = data
        one = quick(network=mlp(layer_normalization=normalization)).fit(X[:1], [1], qid=[7])
        assert_array_equal(one.rank(X[:1], qid=[7]), [1])
        alone = quick(network=mlp(layer_normalization=normalization)).fit(X[:9], y[:9], qid=["a"] * 9)
        assert_array_equal(np.sort(alone.rank(X[:9], qid=["a"] * 9)), np.arange(1, 10))

    @pytest.mark.parametrize("hidden", [(), (8,), (256, 128)])
    def test_equal_documents_share_a_score(self, data, hidden):
        X, y, qid = data
        ranker = quick(network=mlp(hidden=hidden), max_epochs=2).fit(X, y, qid=qid)
        for copies in (2, 5, 33):
            same = np.repeat(X[:5], copies, axis=0)
            scores = ranker.predict(same).reshape(5, copies)
            assert_array_equal(scores, scores[:, :1].repeat(copies, axis=1))
            assert_array_equal(scores[:, 0], ranker.predict(X[:5]))
            ranks = ranker.rank(same, qid=[0] * len(same)).reshape(5, copies)
            assert (np.diff(ranks, axis=1) == 1).all()  # the earlier row wins

    @pytest.mark.parametrize("budget", [1, 5, 10**9])
    def test_a_budget_below_a_query_and_above_all(self, data, budget):
        X, y, qid = data
        ranker = quick(optimizer=adam(batch_documents=budget), max_epochs=2).fit(X, y, qid=qid)
        assert np.isfinite(ranker.predict(X)).all()

    def test_constant_features_and_fewer_rows_than_features(self):
        X, y, qid = ranking_data(3, 4)
        wide = np.concatenate([X, np.ones((len(X), 40)), np.repeat(X, 8, axis=1)], axis=1)
        assert np.isfinite(quick().fit(wide[:10], y[:10], qid=qid[:10]).predict(wide)).all()

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"y": [-1.0] * 12}, "labels|y"),
            ({"y": [1.0] * 11}, "11"),
            ({"qid": [1] * 11}, "11"),
            ({"X": np.full((12, 2), np.inf)}, "X"),
            ({"X": np.full((12, 2), np.nan)}, "NaN|nan"),
            ({"X": np.ones(12)}, "2D"),
        ],
    )
    def test_bad_arrays_are_errors(self, change, said):
        good = {
            "X": np.random.default_rng(0).normal(size=(12, 2)),
            "y": [0, 1, 2] * 4,
            "qid": [1] * 6 + [2] * 6,
        }
        given = good | change
        with pytest.raises(ValueError, match=said):
            quick().fit(given["X"], given["y"], qid=given["qid"])

    @pytest.mark.parametrize(
        ("parameters", "message"),
        [
            ({"relaxation": "gauss"}, "gauss"),
            ({"gain": "ndgc"}, "ndgc"),
            ({"n_iter": -1}, "n_iter"),
            ({"epsilon": -1.0}, "epsilon"),
            ({"sigma": 0}, "sigma must be a finite number above 0, or two"),
            ({"sigma": (1.0, 0.5, 0.2)}, "sigma must be"),
            ({"sigma": "wide"}, "sigma must be"),
            ({"input_transform": "log"}, "input_transform must be 'log1p' or 'none'"),
            ({"normalization": "zscore"}, "normalization must be"),
            ({"optimizer": "adam"}, r"optimizer must be Adam\(\.\.\.\) or LBFGS.*got 'adam'"),
            ({"optimizer": Adam}, r"optimizer must be Adam\(\.\.\.\) or LBFGS.*got <class"),
            ({"network": 5}, r"network must be MLP\(\.\.\.\).*got 5"),
            ({"max_epochs": 0}, "max_epochs must be at least 1"),
            ({"patience": 0}, "patience must be at least 1"),
            ({"validation_fraction": 1}, "validation_fraction must be below 1"),
            ({"validation_fraction": -0.1}, "validation_fraction must be"),
            ({"criterion": "ndgc@5"}, "ndgc@5"),
            ({"dtype": "float16"}, "dtype must be 'float32' or 'float64'"),
            ({"metric": "ndgc@10"}, "Did you mean"),
            ({"convention": "leotr"}, "convention"),
            ({"n_threads": 0}, "n_threads must be at least 1"),
        ],
    )
    def test_wrong_parameters_are_named_before_the_work(self, parameters, message, data, monkeypatch):
        X, y, qid = data
        monkeypatch.setattr(fitting._Trainer, "run", None)
        with pytest.raises(ValueError, match=message):
            quick(**parameters).fit(X, y, qid=qid)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_it_survives_a_fork():
    """The network is wide enough for PyTorch to use OpenMP's threads in a trial of one batch."""
    assert steps_of_a_fork(NeuralRanker, max_epochs=1, verbose=False) == ALL_STEPS
