"""Sudoku by Sinkhorn scaling.

    python examples/sudoku.py                  puzzles of several difficulties, and a figure; about 2 minutes
    python examples/sudoku.py --quick          a few puzzles, in seconds
    python examples/sudoku.py --puzzle 53..7....6..195...      any puzzle: 81 characters, row by row

Let P[i, j, d] be the probability that the cell in row i and column j holds the digit d. Every row, column and
box of a solved Sudoku is a permutation: the 9 x 9 matrix of its cells and the digits is doubly stochastic.
Sinkhorn scaling makes one matrix doubly stochastic. Here 27 matrices overlap and are normalized one after
another (T. K. Moon, J. H. Gunther and J. J. Kupin, Sinkhorn solves Sudoku, IEEE Trans. Information Theory,
2009). The sweeps start from the candidates, 1 where the clues allow a digit and 0 elsewhere. They converge to
the point of largest entropy among all P that satisfy these linear constraints. If the constraints have only
one solution, this point is the solved puzzle.

Two observations make this fast, and make its results proofs:

- P is always the candidates times scalings, and so is P^1.1. Raising P to this power between the sweeps
  therefore does not change the limit of further sweeps, and brings P closer to it: a hundred sweeps replace
  thousands.
- A normalization by sums s multiplies the product of the 81 entries that belong to a solution by 1 / prod(s),
  for every solution. So this product is known without knowing a solution. It cannot exceed 1: if it does,
  there is no solution. No entry of a solution can be smaller than the product: smaller ones are eliminated.

Cells that remain open are solved by search: the most likely digit of the most certain open cell is tried, and
eliminated if it fails. The puzzles are random grids from which clues are removed while the solution stays
unique.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import sinkprop

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Grid = npt.NDArray[np.int64]  # (81,), 0 for an empty cell

CELLS = np.arange(81).reshape(9, 9)
BOXES = CELLS.reshape(3, 3, 3, 3).swapaxes(1, 2).reshape(9, 9)
UNITS = np.concatenate([CELLS, CELLS.T, BOXES])  # (27, 9): the cells of every row, column and box
PEERS = [sorted({int(c) for unit in UNITS if cell in unit for c in unit} - {cell}) for cell in range(81)]

KNOWN = {
    "Wikipedia's example (T. Stellmach, public domain)": (
        "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
    ),
    "17 clues, the fewest possible (from G. Royle's list)": (
        ".......1.4.........2...........5.4.7..8...3....1.9....3..4..2...5.1........8.6..."
    ),
}


def candidates(puzzles: npt.ArrayLike) -> Bools:
    """Candidates (B, 9, 9, 9) of puzzles (B, 81): digits that no clue in a row, column or box excludes."""
    cells = np.asarray(puzzles).reshape(-1, 9, 9, 1)
    given = cells == np.arange(1, 10)
    in_box = given.reshape(-1, 3, 3, 3, 3, 9).any(axis=(2, 4), keepdims=True)
    taken = given.any(axis=1, keepdims=True) | given.any(axis=2, keepdims=True)
    taken = taken | np.broadcast_to(in_box, (len(cells), 3, 3, 3, 3, 9)).reshape(given.shape)
    allowed: Bools = given | ((cells == 0) & ~taken)
    return allowed


def sweep(P: Floats, log_product: Floats) -> tuple[Floats, Floats]:
    """Normalize cells, rows, columns and boxes once, and update the log product of a solution's entries."""
    for shape, axes in (
        ((-1, 9, 9, 9), 3),  # each cell holds one digit
        ((-1, 9, 9, 9), 2),  # each digit occurs once in every row,
        ((-1, 9, 9, 9), 1),  # in every column,
        ((-1, 3, 3, 3, 3, 9), (2, 4)),  # and in every box
    ):
        P = P.reshape(shape)
        s = P.sum(axis=axes, keepdims=True)
        with np.errstate(divide="ignore"):  # a digit without a place: infinite product, no solution
            log_product = log_product - np.log(s).reshape(len(P), -1).sum(axis=1)
        P = P / np.where(s > 0, s, 1.0)
    return P.reshape(-1, 9, 9, 9), log_product


@dataclass(frozen=True)
class Scaled:
    """Probabilities (B, 9, 9, 9) after some sweeps, and flags of puzzles that have no solution."""

    P: Floats
    impossible: Bools

    @property
    def decided(self) -> Bools:
        """Puzzles with one candidate left in each cell: solved, and proved to have no other solution."""
        decided: Bools = ~self.impossible & ((self.P > 0).sum(axis=3) == 1).all(axis=(1, 2))
        return decided

    @property
    def grids(self) -> Grid:
        """The most likely digit of every cell, (B, 81)."""
        return self.P.argmax(axis=3).reshape(-1, 81) + 1


def plain_scaling(allowed: Bools, n_sweeps: int) -> Scaled:
    """Sinkhorn scaling as published: only sweeps."""
    P, log_product = allowed.astype(float), np.zeros(len(allowed))
    for _ in range(n_sweeps):
        P, log_product = sweep(P, log_product)
    return Scaled(P, log_product > 1e-6)


def scaling(allowed: Bools, n_sweeps: int = 100, *, power: float = 1.1) -> Scaled:
    """Sweeps with sharpening between them; candidates that are in no solution are eliminated.

    Rounding errors of the product grow by a factor of 1.1 per sweep: 1.1^100 = 10^4 keeps them far below
    1e-6.
    """
    P, log_product = allowed.astype(float), np.zeros(len(allowed))
    for t in range(n_sweeps):
        if t > 0:
            # With a product above exp(-100), no entry of a solution can underflow here.
            exponent = np.where(log_product > -100, power, 1.0)
            P, log_product = P ** exponent[:, None, None, None], log_product * exponent
        P, log_product = sweep(P, log_product)
        least = np.exp(np.minimum(log_product, 0) - 1e-6)
        P[least[:, None, None, None] > P] = 0.0
    # The last elimination may have left a digit without a place: one more sweep detects this.
    return Scaled(P, sweep(P, log_product)[1] > 1e-6)


def search(allowed: Bools, n_sweeps: int = 100) -> tuple[Grid, npt.NDArray[np.int64]]:
    """Solutions (B, 81), zeros if there is none, and the number of scalings per puzzle.

    The search is depth first, for all puzzles at once. An open puzzle is split in two: its most certain open
    cell holds its most likely digit, or does not.
    """
    stacks = [[puzzle] for puzzle in allowed]
    grids, nodes = np.zeros((len(allowed), 81), dtype=np.int64), np.zeros(len(allowed), dtype=np.int64)
    while active := [b for b, stack in enumerate(stacks) if stack]:
        scaled = scaling(np.stack([stacks[b].pop() for b in active]), n_sweeps)
        nodes[active] += 1
        for k in np.flatnonzero(~scaled.impossible):
            b = active[k]
            if scaled.decided[k]:
                grids[b] = scaled.grids[k]
                stacks[b].clear()
                continue
            P = scaled.P[k].reshape(81, 9)
            is_open = (P > 0).sum(axis=1) > 1
            cell = np.argmax(np.where(is_open, P.max(axis=1), 0.0))
            no = P > 0
            no[cell, P[cell].argmax()] = False
            yes = P > 0
            yes[cell] &= ~no[cell]
            stacks[b] += [no.reshape(9, 9, 9), yes.reshape(9, 9, 9)]
    return grids, nodes


def units_alone(puzzle: Grid) -> Bools:
    """Candidates (81, 9) that survive when each of the 27 matrices is scaled to its own limit, one by one.

    The limit of one matrix is 0 exactly at the entries that are in no permutation of candidates. This covers
    all deductions from one row, column or box at a time (naked and hidden singles, pairs, triples, ...).
    """
    allowed = candidates(puzzle).reshape(81, 9)
    waiting = dict.fromkeys(range(27))
    while waiting:
        first = next(iter(waiting))
        del waiting[first]
        unit = UNITS[first]
        survives = sinkprop.sinkhorn_limit(allowed[unit].astype(float), tol=1e-6).matrix > 0
        changed = unit[(survives != allowed[unit]).any(axis=1)]
        allowed[unit] = survives
        touched = np.flatnonzero(np.isin(UNITS, changed).any(axis=1)).tolist()
        waiting |= dict.fromkeys(u for u in touched if u != first)
    return allowed


def is_valid(grids: npt.ArrayLike) -> Bools:
    """Whether each grid (B, 81) has every digit once in each unit."""
    sorted_units = np.sort(np.asarray(grids).reshape(-1, 81)[:, UNITS], axis=2)
    valid: Bools = (sorted_units == np.arange(1, 10)).all(axis=(1, 2))
    return valid


def solutions(puzzle: list[int], limit: int = 2, rng: np.random.Generator | None = None) -> list[list[int]]:
    """Up to ``limit`` solutions by backtracking, without Sinkhorn scaling; in random order with ``rng``."""

    def place(masks: list[int], cell: int, bit: int) -> bool:
        todo = [(cell, bit)]
        while todo:
            cell, bit = todo.pop()
            if not masks[cell] & bit:
                return False
            masks[cell] = bit
            for peer in PEERS[cell]:
                if masks[peer] & bit:
                    masks[peer] &= ~bit
                    if not masks[peer]:
                        return False
                    if masks[peer].bit_count() == 1:
                        todo.append((peer, masks[peer]))
        return True

    def extend(masks: list[int]) -> None:
        sizes = [(mask.bit_count(), cell) for cell, mask in enumerate(masks) if mask.bit_count() > 1]
        if not sizes:
            found.append([mask.bit_length() for mask in masks])
            return
        cell = min(sizes)[1]
        bits = [1 << d for d in range(9) if masks[cell] >> d & 1]
        if rng is not None:
            rng.shuffle(bits)
        for bit in bits:
            branch = masks.copy()
            if len(found) < limit and place(branch, cell, bit):
                extend(branch)

    found: list[list[int]] = []
    masks = [(1 << 9) - 1] * 81
    if all(place(masks, cell, 1 << digit - 1) for cell, digit in enumerate(puzzle) if digit):
        extend(masks)
    return found


def make_puzzles(n_grids: int, rng: np.random.Generator) -> tuple[Grid, dict[int, Grid]]:
    """Solved grids (n_grids, 81), and puzzles with one solution by number of clues, -1 where there is none.

    The clues of each grid are removed in random order while the solution stays unique.
    """
    grids = np.array([solutions([0] * 81, 1, rng)[0] for _ in range(n_grids)])
    puzzles: dict[int, Grid] = {}
    for g, grid in enumerate(grids):
        puzzle = [int(digit) for digit in grid]
        for cell in rng.permutation(81):
            removed, puzzle[cell] = puzzle[cell], 0
            if len(solutions(puzzle)) > 1:
                puzzle[cell] = removed
            else:
                n_clues = 81 - puzzle.count(0)
                puzzles.setdefault(n_clues, np.full_like(grids, -1))[g] = puzzle
    return grids, puzzles


def read_puzzle(text: str) -> Grid:
    """A puzzle from 81 characters, row by row; . or 0 is an empty cell."""
    if len(text) != 81 or not set(text) <= set(".0123456789"):
        raise argparse.ArgumentTypeError(
            f"expected 81 digits or points, row by row, got {len(text)} characters"
        )
    return np.array([int(c) for c in text.replace(".", "0")])


def show_grid(grid: Grid) -> str:
    rows = [" ".join(str(d) if d else "." for d in row) for row in grid.reshape(9, 9)]
    return "\n".join(f"  {row[:6]}| {row[6:12]}| {row[12:]}" for row in rows)


@dataclass(frozen=True)
class Level:
    """Results for one number of clues: share of puzzles solved by each method, and the cost of search."""

    n_clues: int
    n_puzzles: int
    shares: dict[str, float]
    nodes: npt.NDArray[np.int64]


WAYS = ("units alone", "plain 100", "plain 1000", "sharpened 100", "with search")


def compare(
    grids: Grid, puzzles: dict[int, Grid], levels: list[int], seconds: dict[str, float]
) -> list[Level]:
    """Run every method at every level; ``seconds`` collects the time of each method."""
    results = []
    for n_clues in levels:
        there = (puzzles[n_clues] >= 0).all(axis=1)
        chosen, truth = puzzles[n_clues][there], grids[there]
        allowed = candidates(chosen)
        shares = {}

        def right(answers: Grid, truth: Grid = truth) -> float:
            return float((answers == truth).all(axis=1).mean())

        for way in WAYS:
            start = time.process_time()
            if way == "units alone":
                shares[way] = float(np.mean([(units_alone(p).sum(axis=1) == 1).all() for p in chosen]))
            elif way == "plain 100":
                shares[way] = right(plain_scaling(allowed, 100).grids)
            elif way == "plain 1000":
                shares[way] = right(plain_scaling(allowed, 1000).grids)
            elif way == "sharpened 100":
                scaled = scaling(allowed)
                shares[way] = right(np.where(scaled.decided[:, None], scaled.grids, 0))
            else:
                answers, nodes = search(allowed)
                shares[way] = right(answers)
            seconds[way] = seconds.get(way, 0.0) + time.process_time() - start
        results.append(Level(n_clues, len(chosen), shares, nodes))
    return results


def solved_by_sweeps(allowed: Bools, truth: Grid, most: int) -> dict[str, tuple[list[int], list[float]]]:
    """Share of puzzles whose most likely digits are the solution, after several numbers of sweeps."""

    def curve(way: Callable[[Bools, int], Scaled], sweeps: list[int]) -> tuple[list[int], list[float]]:
        return sweeps, [float((way(allowed, n).grids == truth).all(axis=1).mean()) for n in sweeps]

    return {
        "plain": curve(
            plain_scaling, [n for n in (10, 30, 100, 200, 300, 500, 1000, 2000, 3000) if n <= most]
        ),
        "sharpened": curve(scaling, [10, 20, 30, 40, 50, 60, 80, 100]),
    }


GRAY, BLUE, ORANGE, GREEN = "#8A8A8A", "#0072B2", "#C24E00", "#00825E"


def draw_board(axes: Any, title: str) -> None:
    for k in range(10):
        style = {"color": "black", "linewidth": 1.6 if k % 3 == 0 else 0.4}
        axes.plot([k, k], [0, 9], **style)
        axes.plot([0, 9], [k, k], **style)
    axes.text(4.5, -0.35, title, ha="center", fontsize=11)
    axes.set(xlim=(-0.1, 9.1), ylim=(9.1, -0.9), aspect="equal")
    axes.set_axis_off()


def draw_digits(axes: Any, puzzle: Grid, P: Floats) -> None:
    """Draw clues in black, nearly certain digits in blue, and other digits with size by probability."""
    style = {"ha": "center", "va": "center"}
    for i, j in np.ndindex(9, 9):
        clue = puzzle.reshape(9, 9)[i, j]
        if clue:
            axes.text(j + 0.5, i + 0.52, str(clue), fontsize=15, fontweight="bold", **style)
            continue
        if P[i, j].max() > 0.8:
            digit = P[i, j].argmax() + 1
            axes.text(j + 0.5, i + 0.52, str(digit), fontsize=15 * P[i, j].max(), color=BLUE, **style)
            continue
        for d in np.flatnonzero(P[i, j] > 0.02):
            x, y = j + 0.2 + 0.3 * (d % 3), i + 0.21 + 0.3 * (d // 3)
            color = BLUE if P[i, j, d] > 0.5 else GRAY
            axes.text(x, y, str(d + 1), fontsize=4 + 8 * P[i, j, d], color=color, **style)


def draw(
    path: Path, puzzle: Grid, levels: list[Level], sweeps: dict[str, tuple[list[int], list[float]]], at: int
) -> None:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 7.6), layout="constrained")
    FigureCanvasAgg(figure)
    boards, plots = figure.subfigures(2, 1, height_ratios=(1.25, 1))
    allowed = candidates(puzzle)
    for axes, n, title in zip(
        boards.subplots(1, 3),
        (0, 15, 60),
        (f"{np.count_nonzero(puzzle)} clues", "after 15 sweeps", "after 60 sweeps"),
        strict=True,
    ):
        draw_board(axes, title)
        draw_digits(axes, puzzle, scaling(allowed, n).P[0] if n else np.zeros((9, 9, 9)))

    left, right = plots.subplots(1, 2)
    colors = (GRAY, ORANGE, ORANGE, BLUE, GREEN)
    styles, markers = ("-", ":", "--", "-", "-"), "D^vos"
    names = (
        "each unit alone, to its limit",
        "plain scaling, 100 sweeps",
        "plain scaling, 1,000 sweeps",
        "sharpened, 100 sweeps",
        "sharpened, with search",
    )
    for way, name, color, style, marker in zip(WAYS, names, colors, styles, markers, strict=True):
        shares = [100 * level.shares[way] for level in levels]
        left.plot([level.n_clues for level in levels], shares, style, color=color, marker=marker, label=name)
    left.invert_xaxis()
    left.set(xlabel="clues (harder to the right)", ylabel="puzzles solved, %")
    for name, color, style, marker in (("sharpened", BLUE, "-", "o"), ("plain", ORANGE, "--", "v")):
        right.plot(
            sweeps[name][0], np.multiply(100, sweeps[name][1]), style, color=color, marker=marker, label=name
        )
    right.set(xlabel=f"sweeps, puzzles with {at} clues", xscale="log")
    for axes in (left, right):
        axes.set_ylim(-3, 103)
        axes.grid(True, color="#E6E6E6", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, dpi=100)


def report(name: str, puzzle: Grid) -> bool:
    """Solve and print one puzzle. Returns whether it has a solution."""
    grids, nodes = search(candidates(puzzle))
    alone = "by scaling alone" if nodes[0] == 1 else f"in {nodes[0]} scalings"
    if not is_valid(grids)[0]:
        print(f"{name}: no solution, shown {alone}")
        return False
    print(f"{name}: solved {alone}\n{show_grid(grids[0])}")
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Sudoku by Sinkhorn scaling.")
    parser.add_argument("--quick", action="store_true", help="run a few puzzles, in seconds")
    parser.add_argument("--seed", type=int, default=0, help="random seed of the puzzles (default: 0)")
    parser.add_argument("--out", type=Path, default=Path("sudoku.png"), help="file for the figure")
    parser.add_argument("--puzzle", type=read_puzzle, help="puzzle to solve: 81 digits, . for an empty cell")
    options = parser.parse_args(arguments)
    if options.puzzle is not None:
        return 0 if report("puzzle", options.puzzle) else 1

    n_grids, levels = (8, [32, 26]) if options.quick else (100, [40, 36, 32, 30, 28, 26, 25, 24])
    grids, puzzles = make_puzzles(n_grids, np.random.default_rng(options.seed))
    seconds: dict[str, float] = {}
    results = compare(grids, puzzles, levels, seconds)
    print("share of the puzzles solved; scalings are those of the search, the first included\n")
    print("clues puzzles", *(f"{way:>14}" for way in WAYS), " mean and most scalings")
    for level in results:
        shares = (f"{level.shares[way]:14.0%}" for way in WAYS)
        print(
            f"{level.n_clues:5} {level.n_puzzles:7}",
            *shares,
            f"{level.nodes.mean():8.2f} {level.nodes.max():4}",
        )
    n_puzzles = sum(level.n_puzzles for level in results)
    print("\nms of one core:", *(f"{1e3 * seconds[way] / n_puzzles:14.1f}" for way in WAYS), "\n")
    for name, text in KNOWN.items():
        report(name, read_puzzle(text))

    at = 26
    there = (puzzles[at] >= 0).all(axis=1)
    sweeps = solved_by_sweeps(candidates(puzzles[at][there]), grids[there], 300 if options.quick else 3000)
    shown = puzzles[at][there][scaling(candidates(puzzles[at][there])).decided]
    draw(options.out, shown[0], results, sweeps, at)
    print(f"\nwrote {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
