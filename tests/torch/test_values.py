"""The network and the optimizer of NeuralRanker as values: what they make, and how they fail."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import erf
from sklearn.base import clone

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")

from sinkprop.model_files import ModelFileError  # noqa: E402
from sinkprop.torch import LBFGS, MLP, Adam, NeuralRanker  # noqa: E402
from sinkprop.torch.neural.files import read_network, write_network  # noqa: E402

VALUES = [
    MLP(),
    MLP((8, 4), activation="gelu", dropout=0.25, layer_normalization="batch", linear=False),
    MLP(()),
    Adam(),
    Adam(0.01, weight_decay=0.1, schedule="cosine", clip_norm=2.0, batch_documents=500),
    LBFGS(),
    LBFGS(7, weight_decay=0.5),
]
FUNCTIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + erf(x / np.sqrt(2))) / 2,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "tanh": np.tanh,
}


def some_queries():
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(12), 5)
    return X, np.digitize(X[:, 0] + rng.normal(size=60), [0.5, 2]), qid


@pytest.mark.parametrize("value", VALUES, ids=repr)
class TestEveryValue:
    def test_it_is_frozen(self, value):
        for field in dataclasses.fields(value):
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(value, field.name, getattr(value, field.name))

    def test_its_text_makes_it_again(self, value):
        assert eval(repr(value)) == value
        assert hash(eval(repr(value))) == hash(value)

    def test_copies_are_equal(self, value):
        for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value)), dataclasses.replace(value)):
            assert other == value

    def test_scikit_learn_clones_it(self, value):
        name = "network" if isinstance(value, MLP) else "optimizer"
        ranker = NeuralRanker(**{name: value})
        assert ranker.get_params()[name] is value
        assert clone(ranker).get_params()[name] == value
        assert f"{name}={type(value).__name__}(" in " ".join(repr(ranker).split())


@pytest.mark.parametrize(
    ("make", "settings", "message"),
    [
        (MLP, {"hidden": 32}, r"MLP: hidden must be a sequence of widths, such as \(64, 32\); got 32"),
        (MLP, {"hidden": "64"}, "MLP: hidden must be a sequence of widths"),
        (MLP, {"hidden": (0,)}, "MLP: hidden must be at least 1; got 0"),
        (MLP, {"hidden": (2.5,)}, "MLP: hidden must be a whole number, at least 1; got 2.5"),
        (MLP, {"activation": "relo"}, "MLP: activation must be 'relu' or .* got 'relo'"),
        (MLP, {"activation": ["relu"]}, "MLP: activation must be 'relu'"),
        (MLP, {"dropout": 1.0}, "MLP: dropout must be below 1; got 1.0"),
        (MLP, {"dropout": -0.1}, "MLP: dropout must be a finite number, not below 0; got -0.1"),
        (MLP, {"dropout": None}, "MLP: dropout must be a finite number"),
        (MLP, {"layer_normalization": "group"}, "layer_normalization must be 'batch' or 'layer' or None"),
        (MLP, {"layer_normalization": []}, "layer_normalization must be 'batch' or 'layer' or None"),
        (MLP, {"linear": 1}, "MLP: linear must be True or False; got 1"),
        (Adam, {"learning_rate": 0}, "Adam: learning_rate must be a finite number, above 0; got 0"),
        (Adam, {"learning_rate": "fast"}, "Adam: learning_rate must be"),
        (Adam, {"learning_rate": float("nan")}, "Adam: learning_rate must be"),
        (Adam, {"weight_decay": -1}, "Adam: weight_decay must be"),
        (Adam, {"schedule": "linear"}, "Adam: schedule must be 'constant' or 'cosine'; got 'linear'"),
        (Adam, {"clip_norm": 0}, "Adam: clip_norm must be a finite number, above 0"),
        (Adam, {"batch_documents": 0}, "Adam: batch_documents must be at least 1"),
        (LBFGS, {"max_iter": 1.5}, "LBFGS: max_iter must be a whole number"),
        (LBFGS, {"max_iter": 0}, "LBFGS: max_iter must be at least 1"),
        (LBFGS, {"weight_decay": float("inf")}, "LBFGS: weight_decay must be"),
    ],
)
def test_a_wrong_setting_is_an_error_when_the_value_is_made(make, settings, message):
    with pytest.raises(ValueError, match=message):
        make(**settings)


def test_numbers_of_numpy_become_pythons():
    assert repr(MLP(np.array([4, 3]), dropout=np.float64(0.25))) == repr(MLP((4, 3), dropout=0.25))
    assert repr(MLP([np.int32(4)])) == repr(MLP((4,)))
    found = Adam(np.float64(0.5), clip_norm=np.int64(1), batch_documents=np.int64(9))
    assert repr(found) == repr(Adam(0.5, clip_norm=1.0, batch_documents=9))
    assert repr(LBFGS(np.int64(3), weight_decay=0)) == "LBFGS(max_iter=3, weight_decay=0.0)"


@pytest.mark.parametrize(
    "name",
    [
        *("hidden", "activation", "dropout", "layer_normalization", "module", "learning_rate"),
        *("weight_decay", "schedule", "clip_norm", "batch_documents", "max_iter"),
    ],
)
def test_settings_of_the_values_are_not_parameters_of_the_ranker(name):
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
        NeuralRanker(**{name: None})


class TestModules:
    @pytest.mark.parametrize("activation", FUNCTIONS)
    @pytest.mark.parametrize("linear", [True, False])
    @pytest.mark.parametrize("hidden", [(6,), (6, 4)])
    def test_what_it_computes(self, activation, linear, hidden):
        torch.manual_seed(0)
        module = MLP(hidden, activation=activation, linear=linear)(3, n_outputs=2).double().eval()
        rows = np.random.default_rng(0).normal(size=(5, 3))
        x = rows
        arrays = [p.detach().numpy() for p in module.layers.parameters()]
        assert [W.shape for W in arrays[::2]] == list(zip((*hidden, 2), (3, *hidden), strict=True))
        for W, b in zip(arrays[:-2:2], arrays[1:-2:2], strict=True):
            x = FUNCTIONS[activation](x @ W.T + b)
        expected = x @ arrays[-2].T + arrays[-1]
        if linear:
            expected += rows @ module.linear.weight.detach().numpy().T + module.linear.bias.detach().numpy()
        else:
            assert module.linear is None
        assert_allclose(module(torch.from_numpy(rows)).detach().numpy(), expected, rtol=1e-12)

    @pytest.mark.parametrize(
        ("value", "block"),
        [
            (MLP((5, 4), dropout=0), ["Linear", "ReLU"]),
            (MLP((5, 4)), ["Linear", "ReLU", "Dropout"]),
            (MLP((5, 4), layer_normalization="layer"), ["Linear", "LayerNorm", "ReLU", "Dropout"]),
            (MLP((5, 4), layer_normalization="batch", dropout=0), ["Linear", "BatchNorm", "ReLU"]),
        ],
    )
    def test_the_layers_asked_for(self, value, block):
        module = value(3)
        assert [type(layer).__name__ for layer in module.layers] == block * 2 + ["Linear"]
        drops = [layer.p for layer in module.layers if type(layer).__name__ == "Dropout"]
        assert drops == [value.dropout] * 2 * (value.dropout > 0)
        assert module(torch.zeros(4, 3)).shape == (4,)

    def test_without_hidden_layers_it_is_linear(self):
        for linear in (True, False):  # there is nothing else
            module = MLP((), linear=linear)(3)
            assert module.layers is None
            rows = torch.randn(4, 3)
            assert torch.equal(module(rows), module.linear(rows).squeeze(1))

    def test_the_weights_are_torchs(self):
        torch.manual_seed(3)
        module = MLP((4,))(3)
        torch.manual_seed(3)
        by_hand = [torch.nn.Linear(3, 4), torch.nn.Linear(4, 1), torch.nn.Linear(3, 1)]
        for layer, own in zip((module.layers[0], module.layers[-1], module.linear), by_hand, strict=True):
            assert torch.equal(layer.weight, own.weight)
            assert torch.equal(layer.bias, own.bias)

    def test_wrong_numbers_are_errors(self):
        with pytest.raises(ValueError, match="n_features must be at least 1; got 0"):
            MLP()(0)
        with pytest.raises(ValueError, match="n_outputs must be a whole number"):
            MLP()(3, 1.5)


class TestAdam:
    def test_minibatches(self):
        assert [Adam().documents_per_batch(n) for n in (1, 2048, 8000, 10**6)] == [256, 256, 1000, 4096]
        assert Adam(batch_documents=7).documents_per_batch(10**6) == 7

    def test_the_learning_rate(self):
        assert {Adam(0.5).rate(time, 10) for time in (0, 0.3, 9.9)} == {0.5}
        falling = [Adam(0.5, schedule="cosine").rate(time, 10) for time in (0, 2.5, 5, 10)]
        assert_allclose(falling, [0.5, 0.25 * (1 + np.sqrt(0.5)), 0.25, 0], atol=1e-16)


class TestRankers:
    def test_none_is_the_defaults(self, tmp_path):
        X, y, qid = some_queries()
        path = tmp_path / "fit.checkpoint"

        def stop(epoch):
            raise SystemExit

        plain = NeuralRanker(max_epochs=3).fit(X, y, qid=qid)
        with pytest.raises(SystemExit):
            NeuralRanker(max_epochs=3, checkpoint=path, on_epoch=stop).fit(X, y, qid=qid)
        told = NeuralRanker(network=MLP(), optimizer=Adam(), max_epochs=3, checkpoint=path)
        assert path.exists()
        assert_array_equal(told.fit(X, y, qid=qid).predict(X), plain.predict(X))
        assert not path.exists()

    def test_the_module_is_of_the_value(self):
        X, y, qid = some_queries()
        value = MLP((5, 4), activation="tanh", dropout=0, linear=False)
        for relaxation, n_outputs in (("gaussian", 1), ("probit", 2)):
            ranker = NeuralRanker(network=value, relaxation=relaxation, max_epochs=1).fit(X, y, qid=qid)
            assert repr(ranker.module_) == repr(value(3, n_outputs))
            assert ranker.network is value

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"network": {"hidden": [0]}}, "MLP: hidden must be at least 1"),
            ({"network": {"widths": [4]}}, "unexpected keyword argument 'widths'"),
            ({"network": {"hidden": [5]}}, "weights do not fit this network"),
            ({"network": 3}, "network must be MLP"),
            ({"optimizer": {"type": "SGD"}}, "KeyError: 'SGD'"),
            ({"optimizer": {"type": "LBFGS", "max_iter": 0}}, "LBFGS: max_iter must be at least 1"),
            ({"optimizer": None}, "not a NeuralRanker that sinkprop"),
        ],
    )
    def test_a_file_with_other_settings_is_refused(self, tmp_path, change, message):
        X, y, qid = some_queries()
        path = tmp_path / "m.safetensors"
        NeuralRanker(network=MLP((4,)), max_epochs=1).fit(X, y, qid=qid).save(path)
        model, tensors = read_network(path)
        assert model.state["parameters"]["network"]["hidden"] == [4]
        assert model.state["parameters"]["optimizer"]["type"] == "Adam"
        state = {**model.state, "parameters": {**model.state["parameters"], **change}}
        write_network(path, "NeuralRanker", state, tensors)
        with pytest.raises(ModelFileError, match=message):
            NeuralRanker.load(path)
