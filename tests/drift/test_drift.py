"""Drift: summaries against NumPy, tests against SciPy, false alarms, power, and files of references."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sinkprop import Queries, datasets, evaluate
from sinkprop.baselines import RegressionRanker
from sinkprop.drift import Reference, compare, reference
from sinkprop.drift.comparison import _rank_sum, _t_test
from sinkprop.drift.reference import Summary
from sinkprop.model_files import ModelFileError, read_model, write_model
from sinkprop.store import save_queries

METRICS = "ndcg@1,ndcg@10,map"
RUNS = 16


def fit(queries):
    ranker = RegressionRanker(penalty=0.1, normalization="standard").fit(queries)
    return ranker.calibrate(queries)


@pytest.fixture(scope="module")
def simulated():
    return datasets.make_ranking(240, sizes=(5, 30), n_noise_features=2, random_state=1)


@pytest.fixture(scope="module")
def pydocs():
    fold = datasets.load_pydocs(1)
    parts = fold.train, fold.vali, fold.test
    qid = np.concatenate([[f"{i}-{q}" for q in part.qid.tolist()] for i, part in enumerate(parts)])
    X, y = (np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y"))
    return Queries(X, y, qid, feature_names=parts[0].feature_names)


def part(queries, chosen):
    return queries.take(np.flatnonzero(np.isin(queries.groups.codes, chosen)))


@pytest.fixture(scope="module")
def halves(simulated):
    """A ranker, and two sets of queries that it was not trained on."""
    return (
        fit(part(simulated, np.arange(80))),
        part(simulated, np.arange(80, 160)),
        part(simulated, np.arange(160, 240)),
    )


@pytest.fixture(scope="module")
def then(halves):
    ranker, old, _ = halves
    return reference(ranker, old, metrics=METRICS)


def with_(queries, **changes):
    return dataclasses.replace(queries, **{"allow_nan": True, **changes})


def marked(found):
    return {change.name for change in found.beyond_chance}


def by_name(found):
    return {(change.group, change.name): change for change in found.changes}


def test_summaries_are_those_of_numpy(halves, then):
    ranker, old, new = halves
    third = old.feature_names[2]
    changes = by_name(compare(then, ranker, new))
    codes = [queries.groups.codes for queries in (old, new)]
    for side, queries, code in zip(("then", "now"), (old, new), codes, strict=True):
        scores = ranker.predict(queries)
        means = evaluate(queries.y, scores, queries.qid, METRICS)
        for name in METRICS.split(","):
            assert getattr(changes["quality", name], side) == pytest.approx(means[name])
        each = [np.flatnonzero(code == q) for q in range(queries.n_queries)]
        p = ranker.predict_proba(queries)
        own = {
            ("quality", "mean label"): [queries.y[r].mean() for r in each],
            ("quality", "share of labels >= 1"): [(queries.y[r] >= 1).mean() for r in each],
            ("quality", "calibration: observed - expected relevance"): [
                ((queries.y[r] >= 1) - p[r]).mean() for r in each
            ],
            ("quality", "calibration: log score of relevance"): [
                -np.log(np.where(queries.y[r] >= 1, p[r], 1 - p[r])).mean() for r in each
            ],
            ("scores", "mean score"): [scores[r].mean() for r in each],
            ("scores", "spread of the scores"): [scores[r].std() for r in each],
            ("scores", "documents per query"): [len(r) for r in each],
            ("scores", "share of tied scores"): [1 - len(np.unique(scores[r])) / len(r) for r in each],
            ("scores", "confidence in the first document"): ranker.confidence(queries),
            ("features", f"{third}: mean"): [queries.X[r, 2].mean() for r in each],
            ("features", f"{third}: spread"): [queries.X[r, 2].std() for r in each],
        }
        for key, values in own.items():
            assert getattr(changes[key], side) == pytest.approx(np.mean(values)), key
    held = then.quantities["quality", "calibration: 90% set holds a best document"]
    assert held.n == sum(len(np.unique(old.y[codes[0] == q])) > 1 for q in range(old.n_queries))


@pytest.mark.parametrize("seed", range(3))
def test_p_values_and_intervals_are_those_of_scipy(seed, halves, then):
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=30), rng.normal(0.4, 2, size=40)
    one = Summary.of(a)
    two = Summary.of(b, one.edges)
    t_tests = [stats.ttest_ind(b, a, equal_var=equal).pvalue for equal in (False, True)]
    assert _t_test(one, two) == pytest.approx(max(t_tests))
    bins = [np.searchsorted(one.edges, x) + np.searchsorted(one.edges, x, "right") for x in (a, b)]
    expected = stats.mannwhitneyu(bins[1], bins[0], method="asymptotic")
    assert _rank_sum(one, two) == pytest.approx(expected.pvalue)
    ranker, old, new = halves
    change = by_name(compare(then, ranker, new))["quality", "map"]
    values = [evaluate(q.y, ranker.predict(q), q.qid, "map").per_query["map"] for q in (new, old)]
    interval = stats.ttest_ind(*values, equal_var=False).confidence_interval(0.95)
    assert (change.low, change.high) == pytest.approx(tuple(interval))


def test_nothing_to_test_is_no_test():
    same, empty = Summary.of(np.ones(20)), Summary.of(np.full(20, np.nan))
    for p in (_t_test, _rank_sum):
        assert math.isnan(p(same, Summary.of(np.ones(5), same.edges)))
        assert math.isnan(p(empty, Summary.of(np.ones(5), empty.edges)))
        assert p(same, Summary.of(np.zeros(20), same.edges)) < 1e-6


def test_a_few_equal_values_are_not_trusted():
    one = Summary.of((np.arange(270) % 10 > 0) * 1.0)
    assert _t_test(one, Summary.of(np.ones(30), one.edges)) > 0.05


def test_a_rare_value_is_tested_exactly():
    then, now = np.zeros(270), np.zeros(30)
    now[:2] = [0.5, 0.1]
    one = Summary.of(then)
    exact = stats.hypergeom(300, 2, 30).pmf(2)  # both of the two values are among the 30 new ones
    assert _rank_sum(one, Summary.of(now, one.edges)) == pytest.approx(exact)


@pytest.mark.parametrize("name", ["simulated", "pydocs"])
def test_random_halves_are_rarely_marked(name, request):
    """At most 5 % of comparisons without a change have a mark; see `benchmarks/drift.py` for more runs."""
    queries = request.getfixturevalue(name)
    n, ranker = queries.n_queries, None
    ranker = fit(part(queries, np.arange(n // 4)))
    rest, marks = np.arange(n // 4, n), 0
    for seed in range(RUNS):
        drawn = np.random.default_rng(seed).permutation(rest)
        old, new = part(queries, drawn[: len(rest) // 2]), part(queries, drawn[len(rest) // 2 :])
        marks += bool(compare(reference(ranker, old, metrics=METRICS), ranker, new).beyond_chance)
    assert marks <= stats.binom.ppf(0.999, RUNS, 0.05)


def test_planted_changes_are_found(halves, then):
    ranker, _, new = halves
    assert marked(compare(then, ranker, new)) == set()
    rng = np.random.default_rng(0)
    column = int(np.argmin(np.abs(new.X.std(axis=0) / np.abs(new.X.mean(axis=0)) - 0.3)))
    X, name = new.X.copy(), new.feature_names[column]
    X[:, column] *= 1.3
    assert f"{name}: mean" in marked(compare(then, ranker, with_(new, X=X)))
    X = new.X.copy()
    X[rng.random(len(X)) < 0.3, 0] = np.nan
    missing = RegressionRanker(penalty=0.1, missing="mean", normalization="standard").fit(with_(new, X=X))
    before = reference(missing, new)
    assert f"{new.feature_names[0]}: share missing" in marked(compare(before, missing, with_(new, X=X)))
    found = marked(compare(then, ranker, with_(new, y=np.maximum(new.y - 1, 0))))
    assert found >= {"mean label", "calibration: observed - expected relevance"}
    long = np.argsort(-new.groups.sizes)[:40]
    assert "documents per query" in marked(compare(then, ranker, part(new, long)))


def test_queries_without_labels_have_no_quality(halves, then):
    ranker, _, new = halves
    full, bare = compare(then, ranker, new), compare(then, ranker, with_(new, y=0 * new.y), labeled=False)
    assert {change.group for change in bare.changes} == {"scores", "features"}
    ours = [change for change in full.changes if change.group != "quality"]
    assert [(c.name, c.now, c.p_value) for c in ours] == [(c.name, c.now, c.p_value) for c in bare.changes]
    assert bare.labels == {}
    assert bare.reliability is None


def test_unsorted_queries_and_blocks_give_the_same(halves, then, tmp_path):
    ranker, _, new = halves
    order = np.random.default_rng(0).permutation(len(new))
    stored = save_queries(tmp_path / "new.queries", new, block_bytes=1 << 14)
    known = by_name(compare(then, ranker, new))
    assert len(list(stored.blocks())) > 1
    for queries in (new.take(order), stored):
        for key, change in by_name(compare(then, ranker, queries)).items():
            assert (change.now, change.adjusted) == pytest.approx(
                (known[key].now, known[key].adjusted), nan_ok=True
            )


def test_scores_in_place_of_a_model(halves, then):
    ranker, old, new = halves
    before = reference(ranker.predict(old), old, metrics="map,err")
    assert before.model is None
    assert before.convention.max_grade == old.y.max()
    found = compare(before, ranker.predict(new), new)
    assert {change.group for change in found.changes} == {"quality", "scores"}
    known, own = by_name(compare(then, ranker, new)), by_name(found)
    assert own["quality", "map"].now == known["quality", "map"].now
    with pytest.raises(ValueError, match="the reference was made from scores; give the same"):
        compare(before, ranker, new)
    with pytest.raises(ValueError, match="the reference was made from a RegressionRanker"):
        compare(then, ranker.predict(new), new)
    with pytest.raises(ValueError, match=f"scores must be one per document, {len(new)}; got 3"):
        compare(before, np.zeros(3), new)


def test_categories_are_described_by_their_shares():
    pytest.importorskip("lightgbm")
    from sinkprop.gbdt import BoostedRanker

    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=600), rng.integers(0, 3, 600)])
    X[::50, 1] = np.nan
    names, qid = ("a", "kind"), np.repeat(np.arange(60), 10)
    queries = Queries(
        X, rng.integers(0, 3, 600), qid, feature_names=names, allow_nan=True,
        categories={"kind": ("news", "shop", "wiki")},
    )  # fmt: skip
    ranker = BoostedRanker(n_estimators=3, n_boosters=1, validation_fraction=0, verbose=False).fit(queries)
    before = reference(ranker, queries)
    share = before.quantities["features", "kind: share of shop"]
    each = [X[qid == q, 1] for q in range(60)]
    assert share.mean == pytest.approx(np.mean([(v == 1).sum() / (~np.isnan(v)).sum() for v in each]))
    # the same categories under other codes: nothing has changed
    codes = np.where(np.isnan(X[:, 1]), np.nan, (X[:, 1] + 1) % 3)
    moved = with_(queries, X=np.column_stack([X[:, 0], codes]), categories={"kind": ("wiki", "news", "shop")})
    assert all(change.then == change.now for change in compare(before, ranker, moved).changes)
    shop = np.where(rng.random(600) < 0.5, 1, X[:, 1])
    found = marked(compare(before, ranker, with_(queries, X=np.column_stack([X[:, 0], shop]))))
    assert "kind: share of shop" in found


def test_a_file_gives_the_reference_back(then, halves, tmp_path):
    ranker, old, new = halves
    then.save(tmp_path / "a")
    again = Reference.load(tmp_path / "a")
    again.save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert repr(compare(again, ranker, new).record()) == repr(compare(then, ranker, new).record())
    ranker.save(tmp_path / "model")
    reference(type(ranker).load(tmp_path / "model"), old, metrics=METRICS).save(tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_another_model_or_too_few_queries_are_refused(halves, then):
    ranker, old, new = halves
    other = fit(old)
    with pytest.raises(ValueError, match=r"made by another model, a RegressionRanker; .* other_model=True"):
        compare(then, other, new)
    found = compare(then, other, new, other_model=True)
    assert not found.same_model
    assert found.record()["same_model"] is False
    with pytest.raises(ValueError, match="at least 10, for differences between queries; got 9"):
        compare(then, ranker, part(new, np.arange(9)))
    with pytest.raises(ValueError, match="level must be between 0 and 1; got 2"):
        compare(then, ranker, new, level=2)
    named = with_(new, feature_names=tuple(f"f{i}" for i in range(new.n_features)))
    with pytest.raises(ValueError, match=r"queries lack the features 'title_bm25', .* of the model"):
        compare(then, ranker, named)
    fewer = fit(with_(old, X=old.X[:, 1:], feature_names=old.feature_names[1:]))
    with pytest.raises(ValueError, match="with other features: this model lacks 'title_bm25'; make a new"):
        compare(then, fewer, new, other_model=True)
    with pytest.raises(ValueError, match=r"queries must have the \d+ features of the model; got 2"):
        compare(then, ranker, with_(new, X=new.X[:, :2], feature_names=None))


def test_other_files_are_refused_in_one_line(halves, then, tmp_path):
    halves[0].save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="holds a RegressionRanker, not a reference"):
        Reference.load(tmp_path / "model")
    then.save(tmp_path / "a")
    text = (tmp_path / "a").read_text()
    (tmp_path / "a").write_text(text.replace("ndcg@10", "ndcg@11"))
    with pytest.raises(ModelFileError, match="do not agree with its checksum"):
        Reference.load(tmp_path / "a")
    newer = text.replace('"version": 1', '"version": 9')
    import hashlib

    covered = newer[: newer.rindex('  "sha256"')]
    digest = hashlib.sha256(covered.encode()).hexdigest()
    (tmp_path / "a").write_text(f'{covered}  "sha256": "{digest}"\n}}\n')
    with pytest.raises(ModelFileError, match="newer format 9"):
        Reference.load(tmp_path / "a")


@st.composite
def damages(draw, state):
    """A path into the state of a reference, and another value to put there."""
    path, value = [], state
    while isinstance(value, (dict, list)) and value and (not path or draw(st.booleans())):
        keys = list(value) if isinstance(value, dict) else list(range(min(len(value), 3)))
        path.append(draw(st.sampled_from(keys)))
        value = value[path[-1]]
    other = st.one_of(
        st.none(), st.booleans(), st.integers(-2, 2**70), st.floats(), st.text(max_size=3), st.just([]),
        st.just({}), st.just(np.zeros(2)), st.just(np.array([1, 2, -3])), st.just({"kind": 3}),
    )  # fmt: skip
    return path, draw(other)


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_damaged_reference_is_refused_or_compared(data, then, halves, tmp_path_factory):
    """A file that is whole but wrong gives an error of one line, or a reference that works."""
    import copy

    folder = tmp_path_factory.mktemp("damaged")
    then.save(folder / "a")
    state = copy.deepcopy(read_model(folder / "a").state)
    path, value = data.draw(damages(state))
    place = state
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    write_model(folder / "a", "DriftReference", state)
    said = ""
    try:
        found = Reference.load(folder / "a")
        compare(found, halves[0], part(halves[2], np.arange(12)), other_model=True).record()
    except ValueError as error:  # a ModelFileError is one
        said = str(error)
    assert "\n" not in said
