"""The examples on images, run as a reader would with --quick, and their parts against what they claim."""

import importlib.util
import re

import numpy as np
import pytest
from places import ROOT
from sklearn.metrics import average_precision_score

torch = pytest.importorskip("torch", reason="the examples on images train networks")
pytest.importorskip("matplotlib", reason="the examples on images draw pictures")

EXAMPLES = ROOT / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def sort_digits():
    return load("sort_digits")


@pytest.fixture(scope="module")
def retrieve_digits():
    return load("retrieve_digits")


def assert_png(path):
    assert path.read_bytes().startswith(b"\x89PNG")
    assert 10_000 < path.stat().st_size < 150_000


def test_sorting_numbers_is_learned(sort_digits, tmp_path, capsys):
    sort_digits.main(["--quick", "--out", str(tmp_path / "sorted.png")])
    row = re.search(r"expected accuracy +([\d.]+) \(([\d.]+)\)", capsys.readouterr().out)
    exact, in_place = map(float, row.groups())
    assert exact > 0.6  # 1/6 by chance
    assert in_place > 0.7  # 1/3 by chance
    assert_png(tmp_path / "sorted.png")


def some_digits(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(40, 1, 8, 8, generator=generator), torch.arange(40) % 10


@pytest.mark.parametrize("loss", ["expected accuracy", "expected rho", "cross-entropy"])
def test_the_same_seed_trains_the_same_sorter(sort_digits, loss):
    runs = [
        sort_digits.train(*some_digits(), 4, sort_digits.LOSSES[loss], steps=3, seed=s) for s in (1, 1, 2)
    ]
    first, again, other = (net.weigh.weight for net in runs)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_losses_of_sorting_are_best_at_the_right_order(sort_digits):
    place = torch.tensor([[2, 4, 1, 3], [1, 2, 3, 4]])
    right, wrong = -100.0 * place, -100.0 * place.flip(1)
    losses = sort_digits.LOSSES
    assert losses["expected accuracy"](right, place).item() == pytest.approx(-1, abs=1e-4)
    # reversed, [2, 4, 1, 3] puts no number where it belongs, and neither does [1, 2, 3, 4]
    assert losses["expected accuracy"](wrong, place).item() == pytest.approx(0, abs=1e-4)
    assert losses["expected rho"](right, place).item() == pytest.approx(-(1 + 4 + 9 + 16), abs=1e-3)
    assert losses["cross-entropy"](right, place).item() == pytest.approx(0, abs=1e-4)
    assert losses["cross-entropy"](wrong, place).item() > 5


def test_equal_numbers_may_stand_in_either_order(sort_digits):
    values = torch.tensor([[5, 9, 5, 1]])
    assert sort_digits.accuracy(values, torch.tensor([[1, 2, 0, 3]])) == (1, 1)
    assert sort_digits.accuracy(values, torch.tensor([[1, 2, 3, 0]])) == (0, 0.5)


def test_a_number_is_the_weighted_sum_of_its_digits(sort_digits):
    images, digits = some_digits()
    net = sort_digits.Sorter().eval()
    numbers = torch.tensor([[3, 1, 4, 1]])
    with torch.no_grad():
        net.weigh.weight[0] = torch.tensor([1000.0, 100, 10, 1])
        read = net.read(images).flatten()
        expected = 1000 * read[3] + 100 * read[1] + 10 * read[4] + read[1]
        assert net(images, numbers).item() == pytest.approx(expected.item(), rel=1e-5)
    _, values, _ = sort_digits.sort_lists(net, images, digits, 3, lists=50, seed=0)
    assert values.shape == (50, 3)
    assert 1000 < values.max() <= 9999


def test_retrieval_is_learned(retrieve_digits, tmp_path, capsys):
    retrieve_digits.main(["--quick", "--out", str(tmp_path / "found.png")])
    printed = capsys.readouterr().out
    rows = {
        name: [float(x) for x in values.split()]
        for name, values in re.findall(r"^(pixels|SinkProp) +([\d. ]+)$", printed, re.MULTILINE)
    }
    assert rows["SinkProp"][2] > rows["pixels"][2] + 0.1  # MAP
    assert rows["SinkProp"][0] > 0.85  # P@10, 0.1 by chance
    assert_png(tmp_path / "found.png")


@pytest.mark.parametrize("loss", ["classification", "contrastive", "SinkProp"])
def test_the_same_seed_trains_the_same_embedding(retrieve_digits, loss):
    images, digits = some_digits()
    make = retrieve_digits.LOSSES[loss]
    first, again, other = (
        retrieve_digits.train(images, digits, make, steps=3, seed=s, batch=20)(images) for s in (1, 1, 2)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.allclose(first.norm(dim=1), torch.ones(40), atol=1e-5)


def test_retrieval_is_measured_without_the_query_itself(retrieve_digits):
    generator = torch.Generator().manual_seed(3)
    points = torch.nn.functional.normalize(torch.randn(30, 5, generator=generator))
    digits = torch.arange(30) % 3
    queries = torch.tensor([4, 17, 0])
    found = retrieve_digits.measure(points, digits, queries, ("p@5", "map"))
    cosines = (points @ points.T).numpy()
    precision, average = [], []
    for q in queries.tolist():
        others = np.delete(np.arange(30), q)
        same = digits.numpy()[others] == digits[q].item()
        precision.append(same[np.argsort(-cosines[q, others])[:5]].mean())
        average.append(average_precision_score(same, cosines[q, others]))
    assert found["p@5"] == pytest.approx(np.mean(precision))
    assert found["map"] == pytest.approx(np.mean(average))


def test_contrastive_loss_by_hand(retrieve_digits):
    points = torch.eye(2)[[0, 0, 1]]
    value = retrieve_digits.Contrastive(temperature=1.0)(points, torch.tensor([7, 7, 8]))
    # the first two: one other image of the digit with cosine 1, against cosines 1 and 0; the third has none
    assert value.item() == pytest.approx(2 / 3 * np.log1p(np.exp(-1)), rel=1e-5)


def test_grades_fall_with_the_distance_of_digits(retrieve_digits):
    labels = retrieve_digits.relevance(torch.tensor([5]), torch.tensor([5, 4, 7, 8, 0]), grades=3)
    assert labels.tolist() == [[3, 2, 1, 0, 0]]
