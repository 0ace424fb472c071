"""Files of networks: the same model back, and never another one."""

import dataclasses
import hashlib
import json
import math
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import sinkprop

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")

from torch import nn  # noqa: E402

from sinkprop.baselines import RegressionRanker  # noqa: E402
from sinkprop.model_files import ModelFileError, write_model  # noqa: E402
from sinkprop.torch import LBFGS, MLP, Adam  # noqa: E402
from sinkprop.torch.neural.files import read_network, write_network  # noqa: E402
from sinkprop.torch.ranker import NeuralRanker  # noqa: E402


def ranking_data(n_queries=15, seed=0, n_features=3):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(n_queries), rng.integers(2, 9, n_queries))
    X = rng.normal(size=(len(qid), n_features))
    return X, np.digitize(X[:, 0] + rng.normal(size=len(qid)), [0.5, 2]), qid


def own(n_features):
    return nn.Sequential(nn.Linear(n_features, 2), nn.BatchNorm1d(2), nn.Tanh(), nn.Linear(2, 1))


def squared(scores, labels, *, offsets, query_weight=None):
    return ((scores - labels) ** 2).mean()


MODELS = {
    "default": {},
    "layers": {"network": MLP((4, 3), activation="gelu", dropout=0.2, layer_normalization="layer")},
    "running figures": {
        "network": MLP([4], layer_normalization="batch"),
        "optimizer": Adam(schedule="cosine"),
    },
    "linear": {"network": MLP(()), "optimizer": Adam(np.float32(0.01), clip_norm=1), "n_iter": 2.5},
    "without a linear function": {"network": MLP(np.array([3]), linear=False)},
    "by query": {"normalization": "query", "input_transform": "none", "sigma": 0.5},
    "partitioned": {"relaxation": "beta", "criterion": ("ndcg@5", "map"), "gain": "p@5"},
    "double": {"dtype": "float64", "optimizer": LBFGS(3, weight_decay=0.1), "max_epochs": 2},
    "baseline": {"loss": "listnet", "validation_fraction": 0},
    "own gain": {"gain": sinkprop.RankLinear(gain=np.sqrt, discount=lambda k: 1 / k)},
    "value gain": {"gain": sinkprop.NDCG(10), "random_state": np.random.RandomState(1)},
    "own loss": {"loss": squared},
}


def made(**settings):
    return NeuralRanker(**{"network": MLP((4,)), "max_epochs": 3, **settings})


@pytest.fixture(scope="module")
def data():
    return ranking_data()


@pytest.fixture(scope="module")
def saved(data, tmp_path_factory):
    """A small model's file."""
    path = tmp_path_factory.mktemp("files") / "small.safetensors"
    made(network=MLP(()), max_epochs=1, validation_fraction=0).fit(*data[:2], qid=data[2]).save(path)
    return path


@pytest.mark.parametrize("name", MODELS)
def test_a_saved_model_is_the_same_model(tmp_path, data, name):
    X, y, qid = data
    model = made(**MODELS[name], metric="map", convention="letor").fit(X, y, qid=qid)
    path = tmp_path / "m.safetensors"
    model.save(path)
    for loaded in (NeuralRanker.load(path), sinkprop.load_model(path)):
        assert type(loaded) is NeuralRanker
        assert loaded.convention == "letor"
        assert_array_equal(loaded.predict(X, qid=qid), model.predict(X, qid=qid))
        assert_array_equal(loaded.rank(X, qid=qid), model.rank(X, qid=qid))
        assert loaded.score(X, y, qid=qid) == model.score(X, y, qid=qid)
        assert loaded.sigma_ == model.sigma_
        assert loaded.relaxation_ == model.relaxation_
        epochs = [dataclasses.replace(epoch, seconds=math.nan) for epoch in model.fit_result_.epochs]
        assert [repr(e) for e in loaded.fit_result_.epochs] == [repr(e) for e in epochs]
        assert loaded.fit_result_.message == model.fit_result_.message
        assert loaded.network == (model.network or MLP())
        assert loaded.optimizer == model.optimizer
        assert not loaded.module_.training
        again = tmp_path / "again.safetensors"
        loaded.save(again)
        if name != "own gain":  # a function is not data
            assert again.read_bytes() == path.read_bytes()
    if name == "own loss":
        with pytest.raises(ValueError, match=r"got '.*squared'"):
            loaded.fit(X, y, qid=qid)
    elif name == "own gain":
        with pytest.raises(ValueError, match="set it before the next fit"):
            clone(loaded).fit(X, y, qid=qid)
    else:
        refitted = clone(loaded).fit(X, y, qid=qid)
        if name != "value gain":
            assert_array_equal(refitted.predict(X, qid=qid), model.predict(X, qid=qid))


def test_a_module_of_ones_own_is_given_again(tmp_path, data):
    X, y, qid = data
    path = tmp_path / "m.safetensors"
    model = made(network=own).fit(X, y, qid=qid)
    model.save(path)
    for module in (own, own(3)):
        assert_array_equal(NeuralRanker.load(path, network=module).predict(X), model.predict(X))
    for load in (NeuralRanker.load, sinkprop.load_model):
        with pytest.raises(ModelFileError, match=r"a custom network, Sequential, but not its code"):
            load(path)
    with pytest.raises(ModelFileError, match=r"weights do not fit this network.*size mismatch"):
        NeuralRanker.load(
            path,
            network=lambda n: nn.Sequential(nn.Linear(n, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 1)),
        )
    with pytest.raises(ModelFileError, match=r"weights do not fit this network.*Missing key"):
        NeuralRanker.load(path, network=nn.Linear(3, 1))
    made().fit(X, y, qid=qid).save(path)
    with pytest.raises(ValueError, match="without network="):
        NeuralRanker.load(path, network=own)


def test_safetensors_reads_the_tensors(tmp_path, data):
    safetensors = pytest.importorskip("safetensors.torch", reason="the format's own reader")
    X, y, qid = data
    path = tmp_path / "m.safetensors"
    model = made(network=MLP((4, 3), layer_normalization="batch")).fit(X, y, qid=qid)
    model.save(path)
    found, expected = safetensors.load_file(path), model.module_.state_dict()
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.randn(3, 4).T,
        torch.tensor([True, False]),
        torch.tensor([-(2**62), 5]),
        torch.tensor([float("nan"), float("-inf"), -0.0], dtype=torch.float64),
        torch.tensor([1.5, 2.25], dtype=torch.bfloat16),
        torch.tensor([1.5, 2.25], dtype=torch.float16),
        torch.arange(5, dtype=torch.uint8),
    ],
)
def test_tensors_of_every_kind_come_back(tmp_path, tensor):
    path = tmp_path / "t.safetensors"
    write_network(
        path, "Kind", {"text": 'ä\n"', "none": None}, {"first": torch.ones(3, dtype=torch.int8), "x": tensor}
    )
    model, tensors = read_network(path, kind="Kind")
    assert model.state == {"text": 'ä\n"', "none": None}
    assert list(tensors) == ["first", "x"]
    assert tensors["x"].dtype == tensor.dtype
    assert tensors["x"].shape == tensor.shape
    assert (
        tensors["x"].contiguous().view(-1).numpy(force=True).tobytes()
        == (tensor.contiguous().view(-1).numpy(force=True).tobytes())
        if tensor.dtype != torch.bfloat16
        else torch.equal(tensors["x"], tensor)
    )
    tensors["x"].zero_()  # memory of its own


def test_tensors_that_cannot_be_written(tmp_path):
    path = tmp_path / "t.safetensors"
    with pytest.raises(ValueError, match="complex64"):
        write_network(path, "Kind", {}, {"x": torch.ones(2, dtype=torch.complex64)})
    with pytest.raises(TypeError, match="state"):
        write_network(path, "Kind", {"f": print}, {})
    assert not path.exists()


def refused(path, content):
    path.write_bytes(content)
    for load in (NeuralRanker.load, sinkprop.load_model):
        with pytest.raises(ModelFileError) as error:
            load(path)
        assert str(path) in str(error.value)
        assert "\n" not in str(error.value)


def test_every_changed_byte_is_an_error(saved, tmp_path):
    content = saved.read_bytes()
    path = tmp_path / "m.safetensors"
    rng = np.random.default_rng(0)
    # all of the opening, of the header's end and of the tensors, and a sample of the text between
    body = 8 + int.from_bytes(content[:8], "little")
    places = {*range(130), *range(body - 60, len(content)), *rng.integers(0, len(content), 150).tolist()}
    for place in sorted(places):
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        refused(path, bytes(changed))


def test_files_cut_off_or_continued_are_errors(saved, tmp_path):
    content = saved.read_bytes()
    path = tmp_path / "m.safetensors"
    for end in [*range(0, 120, 7), *range(120, len(content), 97), len(content) - 1]:
        refused(path, content[:end])
    refused(path, content + b"\0")
    refused(path, content + content)
    refused(path, (2**63).to_bytes(8, "little") + content[8:])
    path.write_bytes(content)
    NeuralRanker.load(path)


def test_what_has_a_checksum_but_is_no_model_is_an_error(tmp_path, data):
    path = tmp_path / "m.safetensors"
    write_network(path, "TreeRanker", {}, {})
    with pytest.raises(ModelFileError, match="of the kind TreeRanker, but NeuralRanker was asked for"):
        sinkprop.load_model(path)
    write_network(path, "NeuralRanker", {"parameters": {}, "fitted": {}}, {})
    with pytest.raises(ModelFileError, match="not a NeuralRanker that sinkprop"):
        NeuralRanker.load(path)
    write_network(path, "NeuralRanker", {}, {})
    with pytest.raises(ModelFileError):
        NeuralRanker.load(path)
    write_model(path, "NeuralRanker", {})
    with pytest.raises(ModelFileError, match="not a network of sinkprop"):
        NeuralRanker.load(path)
    X, y, qid = data
    RegressionRanker().fit(X, y, qid=qid).save(path)
    with pytest.raises(ModelFileError):
        NeuralRanker.load(path)
    with pytest.raises(FileNotFoundError):
        sinkprop.load_model(tmp_path / "none.safetensors")


def test_tensors_that_end_after_the_file_are_an_error(tmp_path):
    path = tmp_path / "a"
    write_network(path, "Network", {}, {"weight": torch.arange(3.0)})
    data = path.read_bytes()[:-2]
    digest = hashlib.sha256(data[:35] + data[99:]).hexdigest().encode()
    path.write_bytes(data[:35] + digest + data[99:])
    with pytest.raises(ModelFileError, match="'weight' of 12 bytes has the offsets 0 and 12 of 10"):
        read_network(path)


def test_a_newer_format_says_so(saved, tmp_path):
    content = saved.read_bytes().replace(b'"version":"1"', b'"version":"2"', 1)
    digest = hashlib.sha256(content[:35] + content[99:]).hexdigest().encode()
    path = tmp_path / "m.safetensors"
    refused(path, content)
    path.write_bytes(content[:35] + digest + content[99:])
    with pytest.raises(ModelFileError, match=r"newer format 2.*upgrade"):
        NeuralRanker.load(path)


def test_another_makers_safetensors_is_refused(tmp_path):
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    refused(tmp_path / "m.safetensors", len(header).to_bytes(8, "little") + header + bytes(4))


def test_an_unfitted_ranker_is_not_saved(tmp_path):
    with pytest.raises(NotFittedError):
        made().save(tmp_path / "m.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_the_same_model_makes_the_same_bytes(tmp_path, data):
    X, y, qid = data
    for name in "ab":
        model = made().fit(X, y, qid=qid)
        epochs = tuple(type(e)(e.loss, e.criterion, e.sigma, 0.0, e.chosen) for e in model.fit_result_.epochs)
        object.__setattr__(model.fit_result_, "epochs", epochs)
        model.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_feature_names_go_along(tmp_path, data):
    pandas = pytest.importorskip("pandas")
    X, y, qid = data
    frame = pandas.DataFrame(X, columns=list("abc"))
    path = tmp_path / "m.safetensors"
    made().fit(frame, y, qid=qid).save(path)
    loaded = NeuralRanker.load(path)
    assert loaded.feature_names_in_.tolist() == list("abc")
    with pytest.raises(ValueError, match="feature names should match"):
        loaded.predict(frame[list("acb")])


def test_without_torch_the_error_says_what_is_missing(saved):
    code = f"""
import sys
class WithoutTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'")
sys.meta_path.insert(0, WithoutTorch())
import sinkprop
try:
    sinkprop.load_model({str(saved)!r})
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'holds a network, which needs PyTorch: pip install "sinkprop[torch]"' in done.stdout
