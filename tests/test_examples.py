"""The programs under examples/ do what their pages say, checked independently."""

import importlib.util
import re
import sys

import numpy as np
import pytest
from places import ROOT
from scipy import sparse
from scipy.optimize import LinearConstraint, linprog, milp

import sinkprop

EXAMPLES = ROOT / "examples"
PNG = b"\x89PNG\r\n\x1a\n"


def load(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def assert_picture(path):
    data = path.read_bytes()
    assert data.startswith(PNG)
    assert 20_000 < len(data) < 150_000


# Sudoku: the rules once more, written another way


@pytest.fixture(scope="module")
def sudoku():
    return load("sudoku")


@pytest.fixture(scope="module")
def puzzles(sudoku):
    """Solved grids, and puzzles of 24 to 34 clues made from them."""
    grids, by_clues = sudoku.make_puzzles(5, np.random.default_rng(7))
    chosen = [(g, p) for n in (34, 28, 26, 24) for g, p in zip(grids, by_clues[n], strict=True) if p[0] >= 0]
    return np.array([g for g, _ in chosen]), np.array([p for _, p in chosen])


def follows_the_rules(grid):
    rows = [list(grid[9 * i : 9 * i + 9]) for i in range(9)]
    columns = [list(grid[j::9]) for j in range(9)]
    boxes = [
        [grid[9 * (r + i) + c + j] for i in range(3) for j in range(3)] for r in (0, 3, 6) for c in (0, 3, 6)
    ]
    return all(sorted(unit) == list(range(1, 10)) for unit in rows + columns + boxes)


def constraints():
    """Every family of sums that must be 1, as a (324, 729) matrix over cells and digits."""
    rows = []
    for a in range(9):
        for b in range(9):
            r, c = 3 * (a // 3), 3 * (a % 3)
            rows.append([(a, b, d) for d in range(9)])
            rows.append([(a, j, b) for j in range(9)])
            rows.append([(i, a, b) for i in range(9)])
            rows.append([(r + k // 3, c + k % 3, b) for k in range(9)])
    columns = [81 * i + 9 * j + d for row in rows for i, j, d in row]
    return sparse.csr_matrix((np.ones(len(columns)), (np.repeat(np.arange(324), 9), columns)))


def bounds(puzzle):
    """1 where a clue leaves a digit possible, 0 where its own cell holds another."""
    return np.array([clue in (0, d) for clue in puzzle for d in range(1, 10)], dtype=float)


def test_puzzles_have_the_stated_clues_and_one_solution(puzzles):
    A = constraints()
    for grid, puzzle in zip(*puzzles, strict=True):
        assert follows_the_rules(grid)
        assert (puzzle[puzzle > 0] == grid[puzzle > 0]).all()
        solved = np.eye(9)[grid - 1].ravel()
        other = milp(
            solved,
            constraints=LinearConstraint(A, 1, 1),
            bounds=(0, bounds(puzzle)),
            integrality=np.ones(729),
        )
        assert round(other.fun) == 81  # the solution that agrees least with the known one is that one
    assert sorted({int((p > 0).sum()) for p in puzzles[1]}) == [24, 26, 28, 34]


def test_the_search_solves_every_puzzle(sudoku, puzzles):
    grids, given = puzzles
    answers, nodes = sudoku.search(sudoku.candidates(given))
    assert all(follows_the_rules(answer) for answer in answers)
    np.testing.assert_array_equal(answers, grids)
    assert nodes.min() == 1 < nodes.max()


def test_scaling_alone_solves_what_the_linear_constraints_decide(sudoku, puzzles):
    A, (grids, given) = constraints(), puzzles
    solved = np.eye(9)[grids - 1].reshape(-1, 729)
    decides = []
    for x, puzzle in zip(solved, given, strict=True):
        # The point of the polytope that has least in common with the solution
        least = linprog(x, A_eq=A, b_eq=np.ones(324), bounds=np.column_stack([0 * x, bounds(puzzle)]))
        decides.append(least.fun > 81 - 1e-6)
    decided = sudoku.scaling(sudoku.candidates(given)).decided
    assert 0 < decided.sum() < len(given)
    np.testing.assert_array_equal(decided, decides)


def test_the_product_is_that_of_every_solution(sudoku, puzzles):
    grid = puzzles[0][0].reshape(9, 9)
    twin = grid.copy()  # the first two digits change places throughout
    twin[grid == 1], twin[grid == 2] = 2, 1
    P, log_product = sudoku.candidates(np.where(grid <= 4, 0, grid)).astype(float), np.zeros(1)
    for _ in range(4):
        P, log_product = sudoku.sweep(P**1.3, 1.3 * log_product)
        for solution in (grid, twin):
            entries = np.take_along_axis(P[0], solution[:, :, None] - 1, axis=2)
            np.testing.assert_allclose(np.log(entries).sum(), log_product, rtol=1e-12)


def test_sweeps_lead_where_the_limits_of_the_27_matrices_lead(sudoku, puzzles):
    puzzle = np.where(puzzles[0][0] <= 3, 0, puzzles[0][0])  # many solutions: a limit between them
    P = sudoku.candidates(puzzle)[0].reshape(81, 9).astype(float)
    for _ in range(60):
        for unit in sudoku.UNITS:
            P[unit] = sinkprop.sinkhorn_limit(P[unit], tol=1e-12).matrix
    assert 0.05 < P[(P > 1e-6)].min() < 0.9
    np.testing.assert_allclose(
        sudoku.plain_scaling(sudoku.candidates(puzzle), 600).P[0].reshape(81, 9), P, atol=1e-7
    )


def test_units_alone_strike_out_nothing_that_is_true(sudoku, puzzles):
    left = np.stack([sudoku.units_alone(puzzle) for puzzle in puzzles[1][-4:]])
    assert np.take_along_axis(left, puzzles[0][-4:, :, None] - 1, axis=2).all()
    assert (left <= sudoku.candidates(puzzles[1][-4:]).reshape(-1, 81, 9)).all()
    assert left.sum() < sudoku.candidates(puzzles[1][-4:]).sum()


def test_a_wrong_entry_leaves_no_solution(sudoku, puzzles):
    wrong = []
    for grid, puzzle in zip(*puzzles, strict=True):
        allowed = sudoku.candidates(puzzle)[0].reshape(81, 9).copy()
        allowed[np.arange(81), grid - 1] = False
        cell = int(np.argmax(allowed.any(axis=1)))
        wrong.append(puzzle.copy())
        wrong[-1][cell] = np.argmax(allowed[cell]) + 1
    answers, nodes = sudoku.search(sudoku.candidates(wrong))
    assert not answers.any()
    assert (nodes >= 1).all()


def test_a_puzzle_with_many_solutions_gets_one_of_them(sudoku):
    clues = np.zeros(81, dtype=int)
    clues[:3] = 3, 1, 2
    (answer,), _ = sudoku.search(sudoku.candidates(clues))
    assert follows_the_rules(answer)
    assert tuple(answer[:3]) == (3, 1, 2)


@pytest.mark.slow
def test_sudoku_runs(sudoku, tmp_path, capsys):
    assert sudoku.main(["--quick", "--seed", "3", "--out", str(tmp_path / "s.png")]) == 0
    out = capsys.readouterr().out
    rows = re.findall(r"^ +(?:32|26) +8 .*$", out, re.MULTILINE)
    assert len(rows) == 2
    assert all(row.split()[-3] == "100%" for row in rows)  # with search
    assert out.count("solved by scaling alone") == len(sudoku.KNOWN)
    assert_picture(tmp_path / "s.png")


def test_the_same_seed_makes_the_same_puzzles(sudoku):
    (_, a), (_, b), (_, c) = (sudoku.make_puzzles(2, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(a[30], b[30])
    assert (a[30] != c[30]).any()


def test_one_puzzle_from_the_command_line(sudoku, capsys):
    (first, *_) = sudoku.KNOWN.values()
    assert sudoku.main(["--puzzle", first]) == 0
    printed = [int(d) for d in re.findall(r"\d", capsys.readouterr().out)]
    assert follows_the_rules(printed)
    assert all(c in (".", str(d)) for c, d in zip(first, printed, strict=True))
    assert sudoku.main(["--puzzle", "11" + first[2:]]) == 1
    assert "no solution" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        sudoku.main(["--puzzle", first[:-1]])
    assert "81" in capsys.readouterr().err


# Matching


@pytest.fixture(scope="module")
def match_points():
    pytest.importorskip("torch", reason="needs torch")
    return load("match_points")


def shares(out, title):
    """The rows below a title of the printed table: name to numbers."""
    block = out.split(title)[1].split("\n\n")[0]
    return {line[:34].strip(): np.array(line[34:].split(), dtype=float) for line in block.splitlines()[1:]}


@pytest.mark.slow
def test_matching_learns(match_points, tmp_path, capsys):
    assert match_points.main(["--quick", "--out", str(tmp_path / "m.png")]) == 0
    out = capsys.readouterr().out
    assigned, largest = shares(out, "one-to-one assignment"), shares(out, "largest entry of each row")
    raw, learned = assigned[match_points.RAW], assigned["SinkProp, 5 iterations"]
    assert (learned > raw + 8).all()
    assert (learned[:-1] > learned[1:]).all()  # noise costs
    # What both normalizations buy without an assignment
    assert largest["SinkProp, 5 iterations"][0] > largest[match_points.ROWS_ONLY][0] + 3
    # An assignment does not see the scalings of rows and columns.
    np.testing.assert_array_equal(assigned[match_points.AT_TEST], assigned[match_points.ROWS_ONLY])
    assert_picture(tmp_path / "m.png")


def test_copies_are_where_they_are_said_to_be(match_points):
    import torch

    pairs = match_points.draw_pairs(4, torch.zeros(4), torch.Generator().manual_seed(0), 3)
    assert pairs.has_copy.sum(dim=1).tolist() == [21] * 4
    for b in range(4):
        kept = pairs.has_copy[b]
        X, Y = pairs.X[b][kept], pairs.Y[b][pairs.match[b]][kept]
        torch.testing.assert_close(torch.cdist(X, X), torch.cdist(Y, Y), rtol=0, atol=1e-3)
        lost = pairs.Y[b][pairs.match[b]][~kept]
        assert (torch.cdist(lost, pairs.X[b]).min() > 0).all()
    assert pairs.share_found(pairs.match) == 1.0
    assert pairs.share_found((pairs.match + 1) % 24) == 0.0


def test_affinities_follow_the_points_and_not_the_rotation(match_points):
    import torch

    torch.manual_seed(0)
    model = match_points.Matcher().double()
    X, Y = torch.randn(2, 1, 24, 2, dtype=torch.float64)
    order = torch.randperm(24)
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]], dtype=torch.float64)
    torch.testing.assert_close(model(X, Y[:, order] @ turn), model(X, Y)[:, :, order], rtol=0, atol=1e-9)


def test_assignments_name_the_column_of_each_row(match_points):
    import torch

    columns = torch.tensor([[2, 0, 3, 1]])
    assert match_points.assign(torch.eye(4)[columns]).tolist() == columns.tolist()


def test_the_same_seed_trains_the_same_network(match_points):
    import torch

    torch.set_num_threads(1)
    a, b, c = (
        torch.cat(
            [p.detach().ravel() for p in match_points.train(match_points.GUMBEL, 3, seed, 3).parameters()]
        )
        for seed in (1, 1, 2)
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)
