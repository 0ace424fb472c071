"""Pictures of matrices and forecasts, measured on their artists: positions, areas, colors, limits."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pytest

import sinkprop

matplotlib = pytest.importorskip("matplotlib", reason="the pictures are matplotlib's")
from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: E402
from matplotlib.colors import to_rgba  # noqa: E402
from matplotlib.figure import Figure  # noqa: E402

from sinkprop.calibration import RankCalibration, calibration_report, reliability  # noqa: E402
from sinkprop.clicks import CascadeModel, PositionBasedModel  # noqa: E402
from sinkprop.permutations import LearningRecord  # noqa: E402
from sinkprop.plot import (  # noqa: E402
    examination_curve,
    hinton,
    rank_distribution,
    regret_curve,
    reliability_diagram,
    reliability_diagrams,
    sinkhorn_animation,
    sinkhorn_hinton,
)

A = np.array([[3.0, 1.0, 0.5], [0.2, 2.0, 0.1], [1.0, 0.4, 0.3]])


def squares(collection):
    """Centers (N, 2) and areas (N,) of squares, from their corners."""
    corners = np.array([path.vertices[:4] for path in collection.get_paths()])
    sides = np.ptp(corners, axis=1)
    np.testing.assert_allclose(sides[:, 0], sides[:, 1], atol=1e-12)
    return corners.mean(axis=1), sides[:, 0] * sides[:, 1]


def exactly(message):
    return f"^{re.escape(message)}$"


class TestHinton:
    @pytest.mark.parametrize("shape", [(3, 3), (2, 5), (5, 2), (1, 4), (1, 1)])
    def test_areas_are_proportional_to_entries_and_sums(self, shape):
        M = np.random.default_rng(0).gamma(1.0, size=shape)
        drawn = hinton(M)
        for collection, values in (
            (drawn.entries, M.ravel()),
            (drawn.row_sums, M.sum(axis=1)),
            (drawn.column_sums, M.sum(axis=0)),
        ):
            _, areas = squares(collection)
            np.testing.assert_allclose(areas / areas.max(), values / values.max(), atol=1e-12)
        # the largest of all entries, and of all sums, fills a cell but for a seam
        assert 0.8 < squares(drawn.entries)[1].max() < 1
        sums = [squares(c)[1].max() for c in (drawn.row_sums, drawn.column_sums)]
        assert max(sums) == pytest.approx(squares(drawn.entries)[1].max())

    def test_positions(self):
        drawn = hinton(np.arange(6.0).reshape(2, 3))
        centers, areas = squares(drawn.entries)
        np.testing.assert_allclose(centers, [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (2, 1)], atol=1e-12)
        assert areas[0] == 0
        right, _ = squares(drawn.row_sums)
        np.testing.assert_allclose(right[:, 1], [0, 1])
        assert (right[:, 0] > 2.5).all()
        below, _ = squares(drawn.column_sums)
        np.testing.assert_allclose(below[:, 0], [0, 1, 2])
        assert (below[:, 1] > 1.5).all()
        box = drawn.box.get_bbox()
        assert (box.x0, box.x1, box.y0, box.y1) == (-0.5, 2.5, -0.5, 1.5)

    @pytest.mark.parametrize("sums", [True, False])
    def test_everything_is_within_the_limits_and_the_first_row_is_on_top(self, sums):
        drawn = hinton(A, sums=sums)
        left, right = drawn.ax.get_xlim()
        bottom, top = drawn.ax.get_ylim()
        assert top < bottom
        assert drawn.ax.get_aspect() == 1
        for collection in (drawn.entries, drawn.row_sums, drawn.column_sums):
            for path in collection.get_paths():
                x, y = path.vertices.T
                assert (left < x).all()
                assert (x < right).all()
                assert (top < y).all()
                assert (y < bottom).all()

    def test_without_sums(self):
        drawn = hinton(A, sums=False)
        assert len(drawn.entries.get_paths()) == 9
        assert drawn.row_sums.get_paths() == []
        assert drawn.column_sums.get_paths() == []
        assert drawn.ax.get_xlim()[1] < 3  # no room is left for them
        drawn.update(2 * A)
        assert drawn.row_sums.get_paths() == []

    def test_signs_are_colors(self):
        drawn = hinton([[1.0, -2.0], [0.0, 0.5]], colors=("white", "black"))
        white, black = to_rgba("white"), to_rgba("black")
        assert list(map(tuple, drawn.entries.get_facecolor())) == [white, black, white, white]
        assert [tuple(c[:3]) for c in drawn.row_sums.get_facecolor()] == [black[:3], white[:3]]
        _, areas = squares(drawn.entries)
        np.testing.assert_allclose(areas / areas[1], [0.5, 1, 0, 0.25])

    def test_scales_make_diagrams_comparable(self):
        one, two = hinton(A, scale=10, sum_scale=20), hinton(A / 4, scale=10, sum_scale=20)
        for name in ("entries", "row_sums", "column_sums"):
            areas = [squares(getattr(drawn, name))[1] for drawn in (one, two)]
            np.testing.assert_allclose(areas[0], 4 * areas[1])
        assert (one.scale, one.sum_scale) == (10, 20)
        # the same number has the same area as an entry of scale and as a sum of sum_scale
        assert squares(hinton([[5.0]], scale=10, sum_scale=10).row_sums)[1] == pytest.approx(
            squares(hinton([[5.0]], scale=10).entries)[1]
        )

    def test_all_zeros_are_drawn_as_nothing(self):
        drawn = hinton(np.zeros((2, 2)))
        assert squares(drawn.entries)[1].tolist() == [0, 0, 0, 0]
        drawn.figure.canvas.draw()

    def test_given_axes_are_used_and_others_left_alone(self):
        figure = Figure()
        left, right = figure.subplots(1, 2)
        before = right.get_xlim()
        drawn = hinton(A, left)
        assert drawn.ax is left
        assert drawn.figure is figure
        assert drawn.entries in left.collections
        assert right.get_xlim() == before
        assert len(right.get_children()) == len(Figure().subplots().get_children())

    def test_update_shows_another_matrix_at_the_same_scale(self):
        drawn = hinton(A)
        before = squares(drawn.entries)[1]
        drawn.update(-A / 2)
        np.testing.assert_allclose(squares(drawn.entries)[1], before / 2)
        assert tuple(drawn.entries.get_facecolor()[0]) == to_rgba(drawn.colors[1])
        with pytest.raises(ValueError, match=r"shape of the one that was drawn, \(3, 3\); got \(2, 2\)"):
            drawn.update(np.eye(2))

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            (
                [[1.0, np.nan]],
                "matrix must have finite entries; got matrix[0, 1] = nan. Replace such entries first.",
            ),
            (
                [[1.0], [np.inf]],
                "matrix must have finite entries; got matrix[1, 0] = inf. Replace such entries first.",
            ),
            ([1.0, 2.0], "matrix must have two dimensions and at least one entry; got shape (2,)."),
            (3.0, "matrix must have two dimensions and at least one entry; got shape ()."),
            (np.zeros((0, 3)), "matrix must have two dimensions and at least one entry; got shape (0, 3)."),
            ([[1, 2], [3]], "matrix must be a matrix; got rows of different lengths or kinds."),
            ([["a"]], "matrix must hold real numbers; got dtype <U1. Convert it to float first."),
            ([[1j]], "matrix must hold real numbers; got dtype complex128. Convert it to float first."),
        ],
    )
    def test_what_is_no_matrix_is_refused(self, matrix, message):
        with pytest.raises(ValueError, match=exactly(message)):
            hinton(matrix)

    @pytest.mark.parametrize("scale", [0, -1, np.nan, np.inf])
    @pytest.mark.parametrize("name", ["scale", "sum_scale"])
    def test_a_scale_is_a_positive_number(self, name, scale):
        with pytest.raises(ValueError, match=f"^{name} must be a finite number above 0"):
            hinton(A, **{name: scale})

    @pytest.mark.parametrize("scale", ["1", True, [1]])
    def test_a_scale_is_a_number(self, scale):
        with pytest.raises(TypeError, match=r"^scale must be a number or None"):
            hinton(A, scale=scale)

    @pytest.mark.parametrize("colors", [("red",), "rb", ("a", "b", "c")])
    def test_colors_are_two(self, colors):
        with pytest.raises(ValueError, match=r"^colors must be two"):
            hinton(A, colors=colors)

    def test_large_and_small_numbers_keep_their_proportions(self):
        _, areas = squares(hinton(np.array([[1e300, 5e299], [1e-300, 0]])).entries)
        np.testing.assert_allclose(areas[:2] / areas[0], [1, 0.5])


def test_pyplot_is_not_touched():
    program = (
        "import sys, numpy, sinkprop.plot as plot; M = numpy.ones((3, 3));"
        "plot.hinton(M); plot.sinkhorn_hinton(M); plot.rank_distribution(M / 3);"
        "plot.sinkhorn_animation(M, 1, frames_per_step=1)._draw_next_frame(0, False);"
        "assert 'matplotlib.pyplot' not in sys.modules or not sys.modules['matplotlib.pyplot'].get_fignums()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_matplotlib_is_loaded_by_drawing_only():
    program = (
        "import sys, sinkprop.plot; assert 'matplotlib' not in sys.modules; assert 'scipy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_record_shows_itself_unless_pyplot_does():
    drawn = hinton(A)
    assert drawn._repr_png_().startswith(b"\x89PNG")
    from matplotlib import pyplot

    figure = pyplot.figure()
    try:
        assert hinton(A, figure.subplots())._repr_png_() is None
    finally:
        pyplot.close(figure)


def test_subfigures():
    figure = Figure()
    left, right = figure.subfigures(1, 2)
    assert hinton(A, left.subplots()).figure is figure
    animation = sinkhorn_animation(A, 1, ax=right.subplots(), frames_per_step=1)
    FigureCanvasAgg(figure).draw()  # begins the animation; one that never began is a warning
    assert len(list(animation.new_frame_seq())) == 6


class TestSinkhornHinton:
    def test_panels_are_the_iterations(self):
        figure = sinkhorn_hinton(A, 4)
        assert [drawn.ax for drawn in figure.diagrams] == figure.figure.axes
        for i, drawn in enumerate(figure.diagrams):
            Z = sinkprop.sinkhorn(A, i)
            for collection, values, scale in (
                (drawn.entries, Z.ravel(), drawn.scale),
                (drawn.row_sums, Z.sum(axis=1), drawn.sum_scale),
                (drawn.column_sums, Z.sum(axis=0), drawn.sum_scale),
            ):
                areas = squares(collection)[1]
                full = squares(hinton([[1.0]], sums=False).entries)[1]  # of a cell that is filled
                np.testing.assert_allclose(areas * scale / full, values, rtol=1e-12)

    def test_panels_after_the_first_have_one_scale_and_a_factor_changes_nothing(self):
        one, hundred = sinkhorn_hinton(A), sinkhorn_hinton(100 * A)
        assert len({drawn.scale for drawn in one.diagrams[1:]}) == 1
        assert len({drawn.sum_scale for drawn in one.diagrams[1:]}) == 1
        for a, b in zip(one.diagrams, hundred.diagrams, strict=True):
            np.testing.assert_allclose(squares(a.entries)[1], squares(b.entries)[1], rtol=1e-9)
        assert max(squares(drawn.entries)[1].max() for drawn in one.diagrams) < 1

    def test_epsilon(self):
        drawn = sinkhorn_hinton(np.eye(2), 1, epsilon=1.0).diagrams[1]
        areas = squares(drawn.entries)[1]
        np.testing.assert_allclose(areas / areas[0], [1, 0.5, 0.5, 1])

    @pytest.mark.parametrize("n_iter", [0, 1.5, "3", True])
    def test_iterations_are_counted(self, n_iter):
        with pytest.raises((ValueError, TypeError), match="n_iter"):
            sinkhorn_hinton(A, n_iter)

    def test_what_cannot_be_normalized_is_refused(self):
        with pytest.raises(ValueError, match="column 1 all zeros"):
            sinkhorn_hinton([[1, 0], [1, 0]])
        with pytest.raises(ValueError, match="square"):
            sinkhorn_hinton(np.ones((2, 3)))


class TestAnimation:
    def test_it_goes_from_the_matrix_to_the_iteration(self, tmp_path):
        figure = Figure(figsize=(1.5, 1.5))
        ax = figure.subplots()
        animation = sinkhorn_animation(A, 1.5, ax=ax, frames_per_step=2)
        entries = ax.collections[0]
        frames = list(animation.new_frame_seq())
        assert len(frames) == 2 * 2 * (3 + 1)
        shown, titles = [], []
        for frame in frames:
            animation._func(frame)
            shown.append(squares(entries)[1])
            titles.append(ax.get_title())
        for t, at in ((0, 0), (1, 4), (2, 8), (3, 12)):
            Z = sinkprop.sinkhorn(A, t / 2).ravel()
            np.testing.assert_allclose(shown[at] / shown[at].sum(), Z / Z.sum(), rtol=1e-12)
        np.testing.assert_array_equal(shown[-1], shown[12])
        assert titles[0] == "Initial matrix"
        assert titles[3] == "Iteration 1: columns divided by their sums"
        assert titles[7] == "Iteration 1: rows divided by their sums"
        assert titles[-1] == "Iteration 2: columns divided by their sums"

        animation.save(tmp_path / "a.gif", writer="pillow", dpi=30)
        from PIL import Image

        with Image.open(tmp_path / "a.gif") as image:
            assert image.n_frames > 4

    @pytest.mark.parametrize("name", ["frames_per_step", "interval"])
    def test_counts(self, name):
        with pytest.raises(ValueError, match=name):
            sinkhorn_animation(A, **{name: 0})


class TestRankDistribution:
    SCORES = np.array([0.2, 1.5, 0.3, -1.0])

    def Pi(self):
        return sinkprop.doubly_stochastic(self.SCORES, relaxation=sinkprop.SmoothedIndicator(sigma=0.5))

    def test_documents_are_in_order(self):
        Pi = self.Pi()
        drawn = rank_distribution(Pi, labels=[2, 0, 1.5, 0], docids=["a", "b", "c", "d"])
        assert drawn.order.tolist() == [1, 2, 0, 3]
        np.testing.assert_array_equal(drawn.image.get_array(), Pi[[1, 2, 0, 3]])
        assert [text.get_text() for text in drawn.ax.get_yticklabels()] == [
            "b  (0)",
            "c  (1.5)",
            "a  (2)",
            "d  (0)",
        ]
        assert drawn.ax.get_xticks().tolist() == [1, 2, 3, 4]
        assert list(drawn.image.get_extent()) == [0.5, 4.5, 3.5, -0.5]
        assert drawn.image.get_clim()[0] == 0

    def test_without_names_and_with_an_order_and_a_top(self):
        Pi = self.Pi()
        drawn = rank_distribution(Pi, order=[3, 2, 1, 0], top=2, colorbar=False)
        np.testing.assert_array_equal(drawn.image.get_array(), Pi[[3, 2], :2])
        assert [text.get_text() for text in drawn.ax.get_yticklabels()] == ["3", "2"]
        assert drawn.figure.axes == [drawn.ax]

    def test_one_document_and_very_many(self):
        assert rank_distribution([[1.0]]).image.get_array().tolist() == [[1.0]]
        drawn = rank_distribution(np.full((100, 100), 0.01), docids=np.arange(100))
        assert drawn.ax.get_yticks().size == 0
        assert drawn.ax.get_xticks().tolist() == [1, *range(10, 101, 10)]
        few = rank_distribution(np.full((20, 20), 0.05))
        assert few.ax.get_xticks().tolist() == [1, *range(2, 21, 2)]
        drawn.figure.canvas.draw()

    def test_given_axes_are_used(self):
        figure = Figure()
        ax = figure.subplots()
        assert rank_distribution(self.Pi(), ax=ax).ax is ax
        assert len(figure.axes) == 2  # with the scale

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"labels": [1, 2]}, "labels must have one value per document, 4; got 2."),
            ({"docids": ["a"] * 5}, "docids must have one value per document, 4; got 5."),
            (
                {"order": [0, 1, 2, 2]},
                "order must list every document number from 0 to 3 once, best first; got [0, 1, 2, 2].",
            ),
            (
                {"order": [0, 1]},
                "order must list every document number from 0 to 3 once, best first; got [0, 1].",
            ),
        ],
    )
    def test_bad_arguments(self, arguments, message):
        with pytest.raises(ValueError, match=exactly(message)):
            rank_distribution(self.Pi(), **arguments)

    @pytest.mark.parametrize("Pi", [np.ones((2, 3)), [[np.nan]], [[-0.5]], np.zeros((0, 0))])
    def test_bad_matrices(self, Pi):
        with pytest.raises(ValueError, match=r"^Pi must"):
            rank_distribution(Pi)


@pytest.fixture(scope="module")
def report():
    rng = np.random.default_rng(0)
    qid, scores = np.repeat(np.arange(60), 8), rng.normal(size=480)
    y = np.digitize(scores + rng.normal(size=480), [0.5, 1.5])
    return calibration_report(RankCalibration.fit(scores, y, qid), scores, y, qid)


class TestReliabilityDiagram:
    BEFORE = reliability([0.05] * 4 + [0.95] * 2, [0, 0, 1, 1, 1, 0])
    AFTER = reliability([0.35] * 5 + [0.65], [0, 0, 1, 1, 0, 1])

    def test_points_intervals_and_counts_are_those_of_the_bins(self):
        drawn = reliability_diagram(self.AFTER, self.BEFORE)
        for own, points, bars, places in (
            (self.BEFORE, drawn.points[0], drawn.bars[0], [0, 9]),
            (self.AFTER, drawn.points[1], drawn.bars[1], [3, 6]),
        ):
            line, _, (intervals,) = points
            np.testing.assert_allclose(line.get_xdata(), own.forecast[places])
            np.testing.assert_allclose(line.get_ydata(), own.observed[places])
            ends = np.array([segment[:, 1] for segment in intervals.get_segments()])
            np.testing.assert_allclose(ends, np.stack([own.low[places], own.high[places]], axis=1))
            assert [bar.get_height() for bar in bars] == own.counts.tolist()
            for b, bar in enumerate(bars):  # within its bin
                assert b / 10 < bar.get_x() < bar.get_x() + bar.get_width() < (b + 1) / 10
        texts = [text.get_text() for text in drawn.ax.get_legend().get_texts()]
        assert texts == ["before: calibration error 0.450", "after: calibration error 0.100"]
        assert drawn.counts_ax.get_yscale() == "log"
        assert drawn.figure.axes == [drawn.ax]
        drawn.figure.canvas.draw()
        assert drawn._repr_png_().startswith(b"\x89PNG")

    def test_the_diagonal_is_drawn_and_the_axes_show_all_of_it(self):
        drawn = reliability_diagram(self.AFTER)
        diagonal = drawn.ax.lines[0]
        assert (list(diagonal.get_xdata()), list(diagonal.get_ydata())) == ([0, 1], [0, 1])
        np.testing.assert_allclose(drawn.ax.get_xlim(), [-0.02, 1.02])
        assert drawn.ax.get_yticks().tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
        assert len(drawn.points) == len(drawn.bars) == 1

    def test_one_forecast_and_given_axes(self):
        figure = Figure()
        ax = figure.subplots()
        drawn = reliability_diagram(reliability([1.0], [1]), ax=ax)
        assert drawn.ax is ax
        assert drawn.points[0][0].get_ydata().tolist() == [1]
        FigureCanvasAgg(figure).draw()

    def test_a_report_has_a_panel_for_each_event(self, report):
        drawn = reliability_diagrams(report)
        assert list(drawn.diagrams) == ["top 1", "top 5", "first is best", "label >= 1"]
        assert [own.ax.get_title() for own in drawn.diagrams.values()] == list(drawn.diagrams)
        assert [len(own.points) for own in drawn.diagrams.values()] == [2, 2, 2, 1]
        assert len(drawn.figure.axes) == 4
        assert drawn._repr_png_().startswith(b"\x89PNG")

    @pytest.mark.parametrize("n", [1, 3, 5])
    def test_as_many_panels_as_events(self, report, n):
        events = list(report.after)[:n]
        assert len(reliability_diagrams(report, events).figure.axes) == n

    def test_an_event_that_is_not_there(self, report):
        with pytest.raises(ValueError, match=r"^events must be some of top 1, .*; got 'top 2'\.$"):
            reliability_diagrams(report, ["top 2"])


class TestExaminationCurve:
    ESTIMATE = PositionBasedModel([1, 0.5, 0.25], interval=[[1, 0.4, 0.1], [1, 0.6, 0.4]])
    TRUTH = PositionBasedModel([1, 0.6, 0.3, 0.2])

    def test_one_model_is_one_line_with_its_interval(self):
        drawn = examination_curve(self.ESTIMATE)
        assert drawn.lines == (drawn.line,)
        assert drawn.bands == (drawn.band,)
        assert drawn.line.get_xydata().tolist() == [[1, 1], [2, 0.5], [3, 0.25]]
        ends = {tuple(corner) for corner in drawn.band.get_paths()[0].vertices.tolist()}
        assert ends == {(1, 1), (2, 0.4), (2, 0.6), (3, 0.1), (3, 0.4)}
        assert drawn.ax.get_legend() is None
        assert drawn.ax.get_ylim()[0] == 0
        assert drawn._repr_png_().startswith(b"\x89PNG")

    def test_several_models_are_lines_of_different_colors_and_lengths_with_a_legend(self):
        drawn = examination_curve({"estimate": self.ESTIMATE, "truth": self.TRUTH})
        assert [line.get_ydata().tolist() for line in drawn.lines] == [[1, 0.5, 0.25], [1, 0.6, 0.3, 0.2]]
        assert drawn.ax.lines[:] == list(drawn.lines)
        assert [text.get_text() for text in drawn.ax.get_legend().get_texts()] == ["estimate", "truth"]
        assert drawn.lines[0].get_color() != drawn.lines[1].get_color()
        assert drawn.lines[0].get_marker() != drawn.lines[1].get_marker()
        band, no_band = drawn.bands
        assert no_band is None
        np.testing.assert_allclose(band.get_facecolor()[0], to_rgba(drawn.lines[0].get_color(), 0.2))
        assert drawn.ax.get_xticks().tolist() == [1, 2, 3, 4]
        drawn.figure.canvas.draw()

    def test_given_axes_and_interval(self):
        figure = Figure()
        ax = figure.subplots()
        first = examination_curve(self.TRUTH, ax, label="truth")
        bounds = [[1, 0.45, 0.2], [1, 0.55, 0.3]]
        second = examination_curve(self.ESTIMATE, ax, label="estimate", interval=bounds)
        assert first.ax is second.ax is ax
        assert first.band is None
        assert second.band.get_datalim(ax.transData).ymin == pytest.approx(0.2)
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["truth", "estimate"]

    def test_many_positions_and_one(self):
        many = examination_curve(PositionBasedModel(1 / np.arange(1, 101)))
        assert many.line.get_marker() == ""
        one = examination_curve({"one": PositionBasedModel([1.0]), "many": self.TRUTH})
        assert one.line.get_ydata().tolist() == [1]
        for drawn in (many, one):
            drawn.figure.canvas.draw()

    @pytest.mark.parametrize(
        ("model", "arguments", "message"),
        [
            ([1, 0.5], {}, "click models; got an object of type list."),
            ({}, {}, "click models; got an empty mapping."),
            ({"a": TRUTH, "b": 1.0}, {}, "click models; got an object of type float."),
            ({"a": TRUTH}, {"label": "b"}, "label is for one model."),
            ({"a": TRUTH}, {"interval": [[1], [1]]}, "interval is for one model."),
            (TRUTH, {"interval": [[1], [1]]}, "per position, (2, 4); got (2, 1)."),
            (CascadeModel(), {}, "call CascadeModel.fit(log)"),
        ],
    )
    def test_bad_arguments(self, model, arguments, message):
        with pytest.raises(ValueError, match=re.escape(message)):
            examination_curve(model, **arguments)


class TestRegretCurve:
    FEW = LearningRecord(
        loss=np.array([2.0, 3, 5]),
        expected_loss=np.array([1.5, 3, 4.5]),
        best_loss=np.array([0.0, 1, 3]),
        bound=np.array([2.0, 3, 4]),
    )
    DRAWN = LearningRecord(np.array([2.0, 3]), np.full(2, np.nan), np.array([1.0, 1]), np.array([5.0, 6]))

    def test_one_record_is_its_regret_and_its_bound(self):
        drawn = regret_curve(self.FEW)
        (line,), (bound,) = drawn.lines, drawn.bounds
        assert line.get_xdata().tolist() == bound.get_xdata().tolist() == [1, 2, 3]
        assert line.get_ydata().tolist() == [1.5, 2, 1.5]
        assert bound.get_ydata().tolist() == [2, 3, 4]
        assert bound.get_linestyle() == "--"
        assert [text.get_text() for text in drawn.ax.get_legend().get_texts()] == ["regret", "bound"]
        assert (drawn.ax.get_xlabel(), drawn.ax.get_ylabel()) == ("round", "regret")
        assert drawn._repr_png_().startswith(b"\x89PNG")

    def test_several_records_have_their_own_colors_and_names(self):
        ax = Figure().subplots()
        drawn = regret_curve({"a": self.FEW, "b": self.DRAWN}, ax)
        assert drawn.ax is ax
        assert drawn.lines[1].get_ydata().tolist() == [1, 2]  # of the drawn rankings
        colors = [line.get_color() for line in drawn.lines]
        assert colors == [line.get_color() for line in drawn.bounds]
        assert colors[0] != colors[1]
        names = [text.get_text() for text in ax.get_legend().get_texts()]
        assert names == ["a", "bound of a", "b", "bound of b"]

    def test_without_bounds(self):
        drawn = regret_curve({"a": self.FEW}, bounds=False)
        assert drawn.bounds == ()
        assert len(drawn.ax.lines) == 1

    @pytest.mark.parametrize(
        ("record", "got"),
        [([1, 2], "an object of type list"), ({}, "an empty mapping"), ({"a": 3}, "an object of type int")],
    )
    def test_bad_arguments(self, record, got):
        with pytest.raises(ValueError, match=f"from names to records; got {got}"):
            regret_curve(record)
