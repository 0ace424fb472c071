"""Retrieval of images that show the same digit, trained on the metric that evaluates it.

A query is one of scikit-learn's 8 x 8 digits and the documents are other images. A small network maps images
to points on a sphere, and documents are ranked by their cosine with the query. Each image of a training batch
is a query for all the others, and SinkPropLoss maximizes the expected NDCG of the rankings. It is compared
with the same network, trained for as many steps as a classifier and with a contrastive loss (Khosla et al.
2020), and with two embeddings that are not trained on digits: pixels and principal components. There are
three tests on unseen images:

  known    images of the same digit are relevant
  unseen   the same, but the query's digit was not in the training data; two digits are held out at a time
  graded   the same digit has the largest label, digits one and two away smaller ones

    python examples/retrieve_digits.py              everything; a few minutes on one core
    python examples/retrieve_digits.py --quick      the first test with one loss; seconds
"""

import argparse

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn.functional import cross_entropy, normalize

import sinkprop
from sinkprop.torch import SinkPropLoss

DIMENSIONS = 32
GRADES = 3


def network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(32 * 4 * 4, 64),
        nn.ReLU(),
        nn.Linear(64, DIMENSIONS),
    )


def relevance(a, b, grades=1):
    """Labels (queries, documents): `grades` minus the difference of the two digits, at least 0."""
    return (grades - (a[:, None] - b).abs()).clamp(min=0)


def but_itself(m):
    return ~torch.eye(m, dtype=torch.bool)


class Retrieval(nn.Module):
    """Minus the expected gain, with each image of the batch as a query for the others."""

    def __init__(self, gain="ndcg@10", sigma=0.05, grades=1):
        super().__init__()
        self.loss = SinkPropLoss(gain, sinkprop.SmoothedIndicator(sigma), n_threads=1)
        self.grades = grades

    def forward(self, points, digits):
        labels = relevance(digits, digits, self.grades)
        return self.loss(points @ points.T, labels, mask=but_itself(len(digits)))


class Contrastive(nn.Module):
    """-log softmax of the cosines between an image and the batch, averaged over images of the same digit."""

    def __init__(self, temperature=0.1):
        super().__init__()
        self.temperature = temperature

    def forward(self, points, digits):
        others = but_itself(len(digits))
        log_p = (points @ points.T / self.temperature).masked_fill(~others, -torch.inf).log_softmax(dim=1)
        same = (digits[:, None] == digits) & others
        return -(log_p.masked_fill(~same, 0).sum(1) / same.sum(1).clamp(min=1)).mean()


class Classification(nn.Module):
    """Cross-entropy over the ten digits, each of which has a learned direction on the sphere."""

    def __init__(self, temperature=0.5):
        super().__init__()
        self.directions, self.temperature = nn.Parameter(torch.randn(10, DIMENSIONS)), temperature

    def forward(self, points, digits):
        return cross_entropy(points @ normalize(self.directions).T / self.temperature, digits)


def train(images, digits, make_loss, *, steps, seed, batch=128, rate=5e-3):
    """Train an embedding: a function from images (m, 1, 8, 8) to unit vectors (m, DIMENSIONS)."""
    torch.manual_seed(seed)
    net, loss = network(), make_loss()
    optimizer = torch.optim.Adam([*net.parameters(), *loss.parameters()], lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randperm(len(images))[:batch]
        optimizer.zero_grad()
        loss(normalize(net(images[chosen])), digits[chosen]).backward()
        optimizer.step()
        schedule.step()
    net.eval()
    return torch.no_grad()(lambda images: normalize(net(images)))


def principal_components(images, k=20):
    pca = PCA(k, random_state=0).fit(images.flatten(1).numpy())
    return lambda images: normalize(torch.from_numpy(pca.transform(images.flatten(1).numpy())))


def pixels(images):
    return normalize(images.flatten(1))


def measure(points, digits, queries, metrics, grades=1):
    """Means of the metrics over queries, each of which ranks all other images."""
    others = but_itself(len(points))[queries]
    qid = torch.arange(len(queries))[:, None].expand_as(others)[others]
    labels = relevance(digits[queries], digits, grades)[others]
    return sinkprop.evaluate(labels, (points[queries] @ points.T)[others], qid, metrics, "standard")


LOSSES = {"classification": Classification, "contrastive": Contrastive, "SinkProp": Retrieval}
HELD_OUT = ((0, 5), (1, 6), (2, 7), (3, 8), (4, 9))


def learn(training, make_losses, **options):
    """Embeddings by name: two that are not trained on digits, and one for each loss."""
    fixed = {"pixels": pixels, "principal components": principal_components(training[0])}
    return fixed | {name: train(*training, loss, **options) for name, loss in make_losses.items()}


def known(embeddings, images, digits):
    everyone = torch.arange(len(digits))
    return {
        name: measure(embed(images), digits, everyone, ("p@10", "ndcg@10", "map"))
        for name, embed in embeddings.items()
    }


def unseen(training, images, digits, **options):
    """Means over all queries, each ranked by an embedding that was trained without its digit."""
    sums = {}
    for held_out in HELD_OUT:
        kept = ~torch.isin(training[1], torch.tensor(held_out))
        queries = torch.isin(digits, torch.tensor(held_out)).nonzero().flatten()
        for name, embed in learn([part[kept] for part in training], LOSSES, **options).items():
            found = measure(embed(images), digits, queries, ("p@10", "map"))
            for metric, value in found.items():
                row = sums.setdefault(name, dict.fromkeys(found, 0.0))
                row[metric] += value * len(queries) / len(digits)
    return sums


def graded(embeddings, images, digits):
    everyone = torch.arange(len(digits))
    return {
        name: measure(embed(images), digits, everyone, ("ndcg@100",), GRADES)
        for name, embed in embeddings.items()
    }


def show_table(tests):
    metrics = {test: [*next(iter(rows.values()))] for test, rows in tests.items()}
    print(f"{'':22}" + "".join(f"{test:>{9 * len(names)}}" for test, names in metrics.items()))
    print(f"{'':22}" + "".join(f"{name:>9}" for names in metrics.values() for name in names))
    for method in dict.fromkeys(name for rows in tests.values() for name in rows):
        cells = [tests[test].get(method, {}).get(name) for test, names in metrics.items() for name in names]
        print(f"{method:<22}" + "".join(f"{'':>9}" if x is None else f"{x:>9.3f}" for x in cells))


def draw(path, embeddings, images, digits, tests):
    """Draw queries with their first ten documents by pixels and by SinkProp, and below them the metrics."""
    from matplotlib.figure import Figure

    blue, vermilion, gray = "#0072B2", "#D55E00", "#777777"
    figure = Figure(figsize=(11, 7.4), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.25, 1])

    first_ten, wrong = {}, {}
    for name in ("pixels", "SinkProp"):
        points = embeddings[name](images)
        cosines = (points @ points.T).masked_fill(~but_itself(len(points)), -torch.inf)
        found = cosines.argsort(dim=1, descending=True)[:, :10]
        first_ten[name], wrong[name] = found, (digits[found] != digits[:, None]).sum(1)
    hardest = [int(torch.where(digits == d, wrong["pixels"], -1).argmax()) for d in range(10)]
    hardest.sort(key=lambda query: -wrong["pixels"][query])
    queries = [*hardest[:5], int(wrong["SinkProp"].argmax())]
    last = list(embeddings)[-1]
    plane = PCA(2).fit_transform(embeddings[last](images).numpy())
    pictures, digits = images[:, 0].numpy(), digits.numpy()

    widths = [1, 0.3, *[1] * 10, 0.3, *[1] * 10]
    cells = top.subplots(len(queries), len(widths), gridspec_kw={"width_ratios": widths})
    for cell in cells.flat:
        cell.set_axis_off()
    for row, query in zip(cells, queries, strict=True):
        row[0].imshow(pictures[query], cmap="gray_r")
        for start, name in ((2, "pixels"), (13, "SinkProp")):
            for cell, found in zip(row[start : start + 10], first_ten[name][query], strict=True):
                cell.imshow(pictures[found], cmap="gray_r")
                if digits[found] != digits[query]:
                    cell.set_axis_on()
                    cell.set(xticks=[], yticks=[])
                    cell.spines[:].set(color=vermilion, linewidth=2.2)
    title = (
        "Test queries on which pixels do worst, of five digits; last, the one on which SinkProp does worst"
    )
    top.suptitle(title, fontsize=11)
    cells[0, 0].set_title("query", fontsize=9, color=gray)
    for column, title in ((2, "first ten by pixels"), (13, "first ten by SinkProp")):
        cell = cells[0, column]
        cell.text(0, 1.15, title, transform=cell.transAxes, fontsize=9, color=gray, in_layout=False)

    *bars, scatter = bottom.subplots(1, len(tests) + 1, width_ratios=[*[1] * len(tests), 1.5])
    methods = list(dict.fromkeys(name for rows in tests.values() for name in rows))
    for axis, (test, rows) in zip(bars, tests.items(), strict=True):
        metric = [*next(iter(rows.values()))][-1]
        for y, name in enumerate(methods):
            if name not in rows:
                axis.text(0.02, y, "not run", va="center", fontsize=8, color=gray)
            else:
                value, is_ours = rows[name][metric], name.startswith("SinkProp")
                axis.barh(y, value, color=blue if is_ours else "#BBBBBB", height=0.7)
                ink = "white" if is_ours else "black"
                axis.text(value - 0.02, y, f"{value:.3f}", va="center", ha="right", fontsize=8, color=ink)
        axis.set_title(f"{test}: {metric.upper()}", fontsize=10)
        axis.set(xlim=(0, 1), ylim=(len(methods) - 0.4, -0.6), yticks=range(len(methods)))
        axis.set_yticklabels(methods if axis is bars[0] else [], fontsize=9)
    scatter.scatter(*plane.T, c=digits, cmap="viridis", s=6, alpha=0.8)
    for digit in range(10):
        center = np.median(plane[digits == digit], axis=0)
        circle = {"boxstyle": "circle,pad=0.15", "facecolor": "white", "edgecolor": gray}
        scatter.text(*center, digit, fontsize=12, weight="bold", ha="center", va="center", bbox=circle)
    scatter.set_title(f"{last}: test images in the plane", fontsize=10)
    scatter.set(xticks=[], yticks=[])
    for axis in (*bars, scatter):
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=100)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Retrieve images of the same digit.")
    parser.add_argument("--quick", action="store_true", help="run the first test with one loss and few steps")
    parser.add_argument(
        "--validation", action="store_true", help="test on images held out from the training data"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--out", default="retrieve-digits.png", help="file for the figure")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)

    X, y = load_digits(return_X_y=True)
    images, digits = torch.tensor(X.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32), torch.tensor(y)
    # The test images are held out before any training. They are both queries and documents.
    parts = train_test_split(images, digits, test_size=400, random_state=options.seed, stratify=y)
    if options.validation:
        parts = train_test_split(*parts[::2], test_size=400, random_state=options.seed, stratify=parts[2])
    training, test = parts[::2], parts[1::2]

    if options.quick:
        embeddings = learn(training, {"SinkProp": Retrieval}, steps=40, seed=options.seed)
        tests = {"known": known(embeddings, *test)}
    else:
        by_grades = {"SinkProp, graded": lambda: Retrieval("ndcg", 0.1, GRADES)}
        embeddings = learn(training, LOSSES | by_grades, steps=400, seed=options.seed)
        tests = {
            "known": known(embeddings, *test),
            "unseen": unseen(training, *test, steps=400, seed=options.seed),
            "graded": graded(embeddings, *test),
        }
    show_table(tests)
    draw(options.out, embeddings, *test, tests)
    print(f"\npicture: {options.out}")


if __name__ == "__main__":
    main()
