"""Sorting of handwritten numbers, learned only from the correct order of lists.

Each number is four digits of scikit-learn's 8 x 8 images, side by side. A network gives every number a score.
It never sees the value of a digit, only the correct order of lists of n numbers, as in the paper on
NeuralSort (Grover et al. 2019). Three losses are trained for each n, each through a doubly stochastic matrix:

  expected accuracy  the share of numbers in their correct place, the metric itself: SinkPropLoss with a table
  expected rho       the rank correlation: SinkPropLoss with a gain and a discount, in linear time
  cross-entropy      -log of the probabilities of the correct places: doubly_stochastic as a layer

One of the networks then sorts lists that are far longer than any in training.

    python examples/sort_digits.py                  every n and loss; a few minutes on one core
    python examples/sort_digits.py --quick          n = 3 with one loss; seconds
"""

import argparse
import time

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn

from sinkprop import RankLinear, SmoothedIndicator
from sinkprop.torch import SinkPropLoss, doubly_stochastic

LENGTHS = (3, 5, 7, 9, 15)
PLACES = torch.tensor([1000, 100, 10, 1])
SHARP = SmoothedIndicator(sigma=0.1, kernel="laplace")

# Grover, Wang, Zweig and Ermon (ICLR 2019), Table 1, four digits of MNIST: exact and element-wise accuracy
PUBLISHED = {
    "Vanilla RS": ((0.467, 0.801), (0.093, 0.603), (0.009, 0.492), (0.0, 0.113), (0.0, 0.067)),
    "Sinkhorn": ((0.462, 0.561), (0.038, 0.293), (0.001, 0.197), (0.0, 0.143), (0.0, 0.078)),
    "Gumbel-Sinkhorn": ((0.484, 0.575), (0.033, 0.295), (0.001, 0.189), (0.0, 0.146), (0.0, 0.078)),
    "NeuralSort": ((0.930, 0.951), (0.837, 0.927), (0.738, 0.909), (0.649, 0.896), (0.386, 0.857)),
    "Stochastic NeuralSort": ((0.927, 0.950), (0.835, 0.926), (0.741, 0.909), (0.646, 0.895), (0.418, 0.862)),
}


class Sorter(nn.Module):
    """A network for the score of a number: it reads the four digits, and has a weight for each position.

    A reading goes through twenty slots with a learned value each. Which slots are which digit, what they are
    worth and which place counts most all have to be found from the order of lists.
    """

    def __init__(self, slots=20):
        super().__init__()
        self.read = nn.Sequential(
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.3),
            nn.Linear(32 * 4 * 4, 64),
            nn.ReLU(),
            nn.Dropout(0.3),
            nn.Linear(64, slots),
            nn.Softmax(dim=1),
            nn.Linear(slots, 1, bias=False),
        )
        self.weigh = nn.Linear(4, 1, bias=False)
        with torch.no_grad():  # at the start, no digit and no position counts more than another
            self.read[-1].weight[0] = torch.linspace(-1, 1, slots)
            self.weigh.weight.fill_(1)

    def forward(self, digits, numbers):
        """Scores (...) of numbers (..., 4), given as indices of digits among the images (m, 1, 8, 8)."""
        return self.weigh(self.read(digits).squeeze(1)[numbers]).squeeze(-1)


def places(values):
    """Places in descending order: 1 for the largest value of each row, n for the smallest."""
    return values.argsort(dim=-1, descending=True, stable=True).argsort(dim=-1) + 1


# The labels are the places of the numbers. The second gain is the rank correlation up to scale and shift.
in_place = RankLinear(table=lambda place, rank: (place == rank) / rank.shape[-1])
correlation = RankLinear(gain=lambda place: place, discount=lambda rank: rank)


def cross_entropy(scores, place):
    Pi = doubly_stochastic(scores, relaxation=SHARP)
    return -Pi.gather(-1, place.unsqueeze(-1) - 1).log().mean()


LOSSES = {
    "expected accuracy": SinkPropLoss(in_place, SHARP, n_threads=1),
    "expected rho": SinkPropLoss(correlation, SHARP, n_threads=1),
    "cross-entropy": cross_entropy,
}


def train(images, digits, n, loss, *, steps, seed, batch=256, numbers=1280):
    """Train a network on lists of n numbers. A step combines `batch` digits into `numbers` numbers."""
    torch.manual_seed(seed)
    net = Sorter()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=steps)
    for _ in range(steps):
        chosen = torch.randperm(len(images))[:batch]
        lists = torch.randint(len(chosen), (numbers // n, n, 4))
        values = (digits[chosen][lists] * PLACES).sum(-1)
        optimizer.zero_grad()
        loss(net(images[chosen], lists), places(values)).backward()
        optimizer.step()
        schedule.step()
    return net.eval()


@torch.no_grad()
def sort_lists(net, images, digits, n, *, lists, seed):
    """Random lists (lists, n, 4) of images, their values, and the order that the network gives them."""
    lists = torch.randint(len(images), (lists, n, 4), generator=torch.Generator().manual_seed(seed))
    return lists, (digits[lists] * PLACES).sum(-1), net(images, lists).argsort(dim=-1, descending=True)


def is_right(values, order):
    """Whether each place has the correct number; equal numbers may be in either order."""
    return values.gather(-1, order) == values.sort(dim=-1, descending=True).values


def accuracy(values, order):
    """Share of lists that are sorted exactly, and share of numbers in their correct place."""
    right = is_right(values, order)
    return right.all(-1).float().mean().item(), right.float().mean().item()


def show_table(lengths, results):
    print("share of lists sorted exactly (of numbers in their right place), by the length n of the lists")
    print(f"{'':23}" + "".join(f"{f'n = {n}':>15}" for n in lengths))
    published = {name: dict(zip(LENGTHS, row, strict=True)) for name, row in PUBLISHED.items()}
    for title, rows in (("MNIST, as published", published), ("8 x 8, this run", results)):
        print(title)
        for name, row in rows.items():
            print(f"  {name:<21}" + "".join(f"{row[n][0]:>7.3f} ({row[n][1]:.3f})" for n in lengths))


def show_longer(net, images, digits, seed):
    print(f"\ntrained on lists of 5, tested on{'exact':>11}{'in place':>12}{'places off':>12}{'rho':>9}")
    for n, lists in ((5, 2000), (15, 2000), (100, 500), (1000, 50)):
        _, values, order = sort_lists(net, images, digits, n, lists=lists, seed=seed)
        exact, right = accuracy(values, order)
        off = (order.argsort(dim=-1) + 1 - places(values)).double()
        rho = 1 - 6 * (off**2).sum(-1).mean() / (n * (n * n - 1))
        print(f"  lists of {n:<21}{exact:>11.3f}{right:>12.3f}{off.abs().mean():>12.2f}{rho:>9.4f}")


def show_time():
    print("\nexpected rho of one list and its gradient, one thread")
    loss = LOSSES["expected rho"]
    for n in (1000, 10_000, 100_000):
        scores = torch.randn(1, n, requires_grad=True)
        place, times = places(scores), []
        for _ in range(7):
            start = time.perf_counter()
            loss(scores, place).backward()
            times.append(time.perf_counter() - start)
        print(f"  n = {n:<8}{1e3 * min(times):>9.2f} ms")


def draw(path, net, images, digits, results, *, n, seed):
    """Draw lists before and after sorting, the network's reading of each digit, and the accuracies."""
    from matplotlib.figure import Figure

    blue, vermilion, green, gray = "#0072B2", "#D55E00", "#00825E", "#777777"
    figure = Figure(figsize=(11, 7.6), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.15, 1])

    lists, values, order = sort_lists(net, images, digits, n, lists=400, seed=seed)
    right = is_right(values, order)
    with torch.no_grad():
        read, weights = net.read(images).flatten().numpy(), net.weigh.weight[0].numpy()
    pixels, digits, lists, values, order, right = (
        x.numpy() for x in (images[:, 0], digits, lists, values, order, right)
    )
    chosen = [*np.flatnonzero(right.all(1))[:2], *np.flatnonzero(~right.all(1))[:1]]

    title = f"Lists of {n} test numbers: as given, and below as the network sorts them, largest first"
    top.suptitle(title, fontsize=11)
    cells = top.subplots(2 * len(chosen), n, gridspec_kw={"hspace": 0.12, "wspace": 0.06})
    for (given, sorted_), which in zip(cells.reshape(-1, 2, n), chosen, strict=True):
        for row, name, numbers in ((given, "given", range(n)), (sorted_, "sorted", order[which])):
            row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9, color=gray)
            for cell, number in zip(row, numbers, strict=True):
                cell.imshow(np.hstack(pixels[lists[which, number]]), cmap="gray_r", aspect="auto")
                cell.set(xticks=[], yticks=[])
                cell.spines[:].set(color="#DDDDDD", linewidth=0.8)
        for cell, number, fits in zip(sorted_, order[which], right[which], strict=True):
            cell.set_xlabel(f"{values[which, number]:04d}", fontsize=8, color=gray, labelpad=2)
            if not fits:
                cell.spines[:].set(color=vermilion, linewidth=2.5)
                cell.xaxis.label.set(color=vermilion, weight="bold")

    reading, exact, element = bottom.subplots(1, 3)
    low, high = (np.median(read[digits == digit]) for digit in (0, 9))
    jitter = np.random.default_rng(0).uniform(-0.25, 0.25, len(digits))
    reading.plot(digits + jitter, 9 * (read - low) / (high - low), ".", color=blue, markersize=3, alpha=0.6)
    reading.set_title("What it reads in each test image", fontsize=10)
    reading.set(xlabel="digit, which it is never told", ylabel="reading, scaled to 0 to 9")
    reading.set(xticks=range(10), yticks=range(10))
    ratios = " : ".join(f"{w:.3g}" for w in weights / weights[0])
    reading.text(9.3, -0.2, f"the four places weigh\n{ratios}", ha="right", fontsize=8, color=gray)

    for axis, which, title in (
        (exact, 0, "Lists sorted exactly"),
        (element, 1, "Numbers in their right place"),
    ):
        for (name, row), color, marker in zip(results.items(), (blue, green, vermilion), "o^s", strict=False):
            axis.plot(list(row), [x[which] for x in row.values()], color=color, marker=marker, label=name)
        for name, style in (("Stochastic NeuralSort", "--"), ("Gumbel-Sinkhorn", ":"), ("Vanilla RS", "-.")):
            published = [x[which] for x in PUBLISHED[name]]
            axis.plot(LENGTHS, published, style, color=gray, linewidth=1.2, label=f"{name} (MNIST)")
        axis.set_title(title, fontsize=10)
        axis.set(xlabel="numbers in a list, n", xticks=LENGTHS, ylim=(-0.03, 1.03))
    exact.legend(fontsize=7.5, frameon=False, loc="lower right", bbox_to_anchor=(1.02, 0.03))
    for axis in (reading, exact, element):
        axis.grid(True, color="#E6E6E6", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.savefig(path, dpi=95)


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Learn to sort handwritten numbers from their order.")
    parser.add_argument("--quick", action="store_true", help="run n = 3 with one loss and few steps")
    parser.add_argument(
        "--validation", action="store_true", help="test on images held out from the training data"
    )
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--out", default="sort-digits.png", help="file for the figure")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)

    # Images are split before they are combined into numbers: no test number has an image used in training.
    X, y = load_digits(return_X_y=True)
    images, digits = torch.tensor(X.reshape(-1, 1, 8, 8) / 16, dtype=torch.float32), torch.tensor(y)
    parts = train_test_split(images, digits, test_size=300, random_state=options.seed, stratify=y)
    if options.validation:
        parts = train_test_split(*parts[::2], test_size=300, random_state=options.seed, stratify=parts[2])
    training, test = parts[::2], parts[1::2]

    lengths, names, steps, drawn = LENGTHS, list(LOSSES), 1000, 9
    if options.quick:
        lengths, names, steps, drawn = (3,), ["expected accuracy"], 150, 3
    nets, results = {}, {}
    for name in names:
        for n in lengths:
            net = nets[name, n] = train(*training, n, LOSSES[name], steps=steps, seed=options.seed)
            _, values, order = sort_lists(net, *test, n, lists=2000, seed=options.seed)
            results.setdefault(name, {})[n] = accuracy(values, order)
    show_table(lengths, results)
    if not options.quick:
        show_longer(nets["expected accuracy", 5], *test, options.seed)
        show_time()
    draw(options.out, nets["expected accuracy", drawn], *test, results, n=drawn, seed=options.seed)
    print(f"\npicture: {options.out}")


if __name__ == "__main__":
    main()
