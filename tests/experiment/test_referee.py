"""The referee: many methods on many sets, resumed, with failures, as a table."""

import json
import math
import re

import numpy as np
import pytest
from click.testing import CliRunner
from fold_folders import write_data_set
from numpy.testing import assert_array_equal
from scipy.stats import rankdata

from sinkprop import Queries, cli, save_letor
from sinkprop.baselines import RegressionRanker
from sinkprop.data.letor import load_letor
from sinkprop.datasets import make_ranking, pydocs_folds
from sinkprop.experiment import compare
from sinkprop.experiment.methods import METHODS, Method, parse_methods
from sinkprop.experiment.referee import BUILT_IN, Fit, KeptFits, Standings, five_folds, named_sets, referee
from sinkprop.experiment.referee import run as referee_run
from sinkprop.store import open_queries, save_queries

CHEAP = "regression,best-feature"


def small(n_queries=25, seed=0, **more):
    return make_ranking(n_queries, sizes=(4, 9), random_state=seed, **more)


@pytest.fixture(scope="module")
def sets():
    """Two sets with different features."""
    a, b = small(), small(30, 1, n_noise_features=0)
    assert a.n_features != b.n_features
    return {"a": five_folds(a), "b": five_folds(b)}


class Failing(RegressionRanker):
    """A ranker that fails on data with few features, in two lines."""

    def fit(self, X, y=None, **more):
        if X.n_features < 100:
            raise RuntimeError("too few\nfeatures")
        return super().fit(X, y, **more)


class Timed(RegressionRanker):
    """A ranker that can be told how long a fit may take."""

    def __init__(self, time_budget=None, convention="standard"):
        super().__init__(convention=convention)
        self.time_budget = time_budget

    def fit(self, X, y=None, **more):
        assert self.time_budget == 2.5
        assert self.convention == "letor"
        return super().fit(X, y, **more)


@pytest.fixture
def failing(monkeypatch):
    monkeypatch.setitem(METHODS, "fails", Method("fails", Failing, 1))


def without_times(found):
    record = json.loads(found.to_json())
    for method in record["methods"]:
        assert method.pop("processor_seconds") >= 0
    return record


def test_the_standings_are_those_of_compare(sets):
    found = referee(sets, CHEAP, metrics="ndcg@3,ndcg@5")
    for name, folds in sets.items():
        direct = compare({name: folds}, CHEAP, metrics="ndcg@3,ndcg@5", convention="standard", n_jobs=1)
        means = {
            method: np.mean([direct.mean(name, method, f"ndcg@{k}") for k in (3, 5)])
            for method in found.methods
        }
        for method, mean in means.items():
            assert found.mean(name, method) == pytest.approx(mean, abs=1e-12)
        best = max(means, key=means.get)
        assert found.best(name) == best
        (other,) = set(means) - {best}
        test = found.tests(name)[other]
        assert test.difference == pytest.approx(means[other] - means[best], abs=1e-12)
        assert test.interval[0] < test.difference < test.interval[1]
        ranks = rankdata([-mean for mean in means.values()])
        assert [found.rank(name, method) for method in means] == ranks.tolist()
    for method in found.methods:
        assert found.average_rank(method) == np.mean([found.rank(name, method) for name in sets])
        own = [fit.processor_seconds for fit in found.fits if fit.method == method]
        assert len(own) == 10
        assert found.processor_seconds(method) == pytest.approx(np.mean(own))


def test_methods_that_are_equal_share_their_rank(sets, monkeypatch):
    monkeypatch.setitem(METHODS, "again", METHODS["regression"])
    found = referee({"a": sets["a"]}, "regression,again,best-feature", metrics="ndcg@5")
    assert [found.rank("a", method) for method in found.methods] == [1.5, 1.5, 3.0]
    assert found.tests("a")["again"].difference == 0


def test_an_interrupted_run_resumes_and_gives_the_same_table(sets, tmp_path, monkeypatch):
    whole = referee(sets, CHEAP)
    keep, made = tmp_path / "fits", []
    real = referee_run.run_fit

    def interrupted(job):
        if len(made) == 7:
            raise KeyboardInterrupt
        made.append(str(job))
        return real(job)

    monkeypatch.setattr(referee_run, "run_fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        referee(sets, CHEAP, keep=keep)
    assert len(keep.read_text().splitlines()) == 7
    with keep.open("a") as file:
        file.write('{"key": "cut off')  # killed while writing
    made.clear()
    monkeypatch.setattr(referee_run, "run_fit", lambda job: made.append(str(job)) or real(job))
    resumed = referee(sets, CHEAP, keep=keep)
    assert len(made) == len(set(made)) == 13
    assert without_times(resumed) == without_times(whole)
    again = referee(sets, CHEAP, keep=keep)
    assert len(made) == 13
    assert again.to_markdown() == resumed.to_markdown()  # the times, too


def test_other_data_settings_and_code_are_other_fits(sets, tmp_path, monkeypatch):
    keep, made = tmp_path / "fits", []
    real = referee_run.run_fit
    monkeypatch.setattr(referee_run, "run_fit", lambda job: made.append(str(job)) or real(job))
    one = {"a": sets["a"][:1]}

    def count(*arguments, **options):
        made.clear()
        referee(*arguments, keep=keep, **options)
        return len(made)

    assert count(one, "regression") == 1
    assert count(one, "regression") == 0
    assert count(one, "ridge,regression") == 1
    assert count(one, "regression", metrics="ndcg@5") == 1
    assert count(one, "regression", convention="letor") == 1
    assert count({"a": sets["b"][:1]}, "regression") == 1
    assert count(one, "regression", budget=3.0) == 0  # it takes none
    monkeypatch.setattr("sinkprop.experiment.referee.fits._source_code", lambda: "changed")
    assert count(one, "regression") == 1


def test_a_method_that_fails_is_in_the_table_with_its_reason(sets, failing, tmp_path):
    small_set, wide = sets["a"], {"wide": five_folds(wide_queries())}
    found = referee({"a": small_set, **wide}, "fails,regression,best-feature", keep=tmp_path / "fits")
    assert math.isnan(found.mean("a", "fails"))
    assert found.failure("a", "fails") == "Fold1: RuntimeError: too few features"
    assert found.failure("wide", "fails") is None
    assert found.mean("wide", "fails") == found.mean("wide", "regression")
    assert found.rank("a", "fails") == 3.0
    assert "fails" not in found.tests("a")
    text = found.to_markdown()
    row = next(line for line in text.splitlines() if line.startswith("| `fails`"))
    assert row.split(" | ")[1] == "failed"
    assert "- `fails` failed on a, Fold1: RuntimeError: too few features" in text
    kept = referee({"a": small_set, **wide}, "fails,regression,best-feature", keep=tmp_path / "fits")
    assert kept.to_markdown() == text
    (record,) = (m for m in json.loads(found.to_json())["methods"] if m["method"] == "fails")
    assert record["datasets"]["a"]["failure"] == "Fold1: RuntimeError: too few features"
    assert record["datasets"]["a"]["mean"] is None


def wide_queries():
    queries = small()
    return Queries(np.tile(queries.X, (1, 3)), queries.y, queries.qid)


def test_all_methods_may_fail(sets, failing):
    found = referee({"a": sets["a"][:2]}, "fails")
    assert found.best("a") is None
    assert found.tests("a") == {}
    assert math.isnan(found.processor_seconds("fails"))
    assert "| `fails` | failed | 1.0 |  |" in found.to_markdown()
    assert json.loads(found.to_json())["methods"][0]["processor_seconds"] is None


def test_a_budget_reaches_the_methods_that_take_one(sets, monkeypatch):
    monkeypatch.setitem(METHODS, "timed", Method("timed", Timed, 1))
    found = referee({"a": sets["a"][:1]}, "timed,regression", budget=2.5, convention="letor")
    assert found.failure("a", "timed") is None
    assert found.budgeted == ("timed",)
    assert "- Budget: 2.5 s per fit, for methods that can be given one: `timed`" in found.to_markdown()
    for wrong in (0, -1.0, math.nan, "1"):
        with pytest.raises(ValueError, match="budget must be"):
            referee({"a": sets["a"][:1]}, "regression", budget=wrong)


def test_two_processes_give_the_same_standings(sets):
    few = {"b": sets["b"][:2]}
    assert without_times(referee(few, CHEAP, n_jobs=2)) == without_times(referee(few, CHEAP))


def test_everything_is_every_method_that_is_installed():
    everything = parse_methods("everything")
    assert set(parse_methods("all")) <= set(everything)
    assert set(everything) <= set(METHODS)


def test_five_folds_test_each_query_once():
    queries = small(23)
    folds = five_folds(queries)
    tested = np.concatenate([fold.test.groups.queries for fold in folds])
    assert sorted(tested.tolist()) == sorted(queries.groups.queries.tolist())
    for fold in folds:
        parts = [set(part.groups.queries.tolist()) for part in (fold.train, fold.vali, fold.test)]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 23
    with pytest.raises(ValueError, match="five folds need at least 5 queries; got 4"):
        five_folds(small(4))


def test_sets_of_every_kind(tmp_path):
    queries = small(20)
    write_data_set(tmp_path / "MINE")
    save_letor(tmp_path / "text.txt", queries)
    save_queries(tmp_path / "kept.queries", queries)
    found = named_sets([tmp_path / "MINE", tmp_path / "text.txt", str(tmp_path / "kept.queries"), "pydocs"])
    assert list(found) == ["MINE", "text", "kept", "pydocs"]
    kept = open_queries(tmp_path / "kept.queries").load()
    assert_array_equal(found["kept"][0].test.X, five_folds(kept)[0].test.X)
    assert_array_equal(found["text"][0].test.y, five_folds(load_letor(tmp_path / "text.txt"))[0].test.y)
    assert_array_equal(found["pydocs"][2].test.X, pydocs_folds()[2].test.X)
    (only,) = named_sets(["pydocs"], folds=[2])["pydocs"]
    assert only.name == "Fold2"
    with pytest.raises(ValueError, match="pydocs has no fold 9; its folds are Fold1, Fold2"):
        named_sets(["pydocs"], folds=[9])
    with pytest.raises(ValueError, match="two data sets have the name 'pydocs'"):
        named_sets(["pydocs", "pydocs"])
    with pytest.raises(FileNotFoundError, match="'pydoc' is neither a file or folder nor a built-in set"):
        named_sets(["pydoc"])
    with pytest.raises(ValueError, match="sets must hold at least one data set"):
        referee({}, "regression")


def test_built_in_sets_differ():
    first = {name: BUILT_IN[name]()[0].train for name in BUILT_IN}
    assert len({part.y.tobytes() for part in first.values()}) == len(BUILT_IN)


def test_missing_values_reach_the_methods(tmp_path):
    save_letor(tmp_path / "whole.txt", small(20))
    lines = (tmp_path / "whole.txt").read_text().splitlines()
    lines[::7] = [re.sub(r" 2:\S+", " 2:nan", line) for line in lines[::7]]
    (tmp_path / "holes.txt").write_text("\n".join(lines) + "\n")
    folder = tmp_path / "HOLES" / "Fold1"
    folder.mkdir(parents=True)
    for name in ("train", "vali", "test"):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    sets = named_sets([tmp_path / "holes.txt", tmp_path / "HOLES"])
    assert np.isnan(sets["HOLES"][0].read().train.X).any()
    found = referee(sets, "regression", metrics="ndcg@5")
    assert found.failure("holes", "regression") is None
    assert found.failure("HOLES", "regression") is None


def fit(dataset="a", method="m", values=(1.0, None), **more):
    given = {"key": f"{dataset}{method}", "fold": "Fold1", "queries": (1, "b"), "seconds": 1.0,
             "processor_seconds": 2.0, "failure": None, **more}  # fmt: skip
    return Fit(dataset=dataset, method=method, per_query={"ndcg@5": values}, **given)


def test_queries_that_do_not_count_are_left_out():
    found = Standings(
        ("a",), ("m", "n"), ("ndcg@5",), "standard", (fit(), fit(method="n", values=(0.5, None)))
    )
    assert found.mean("a", "m") == 1.0
    assert found.tests("a")["n"].difference == -0.5


def test_a_file_of_kept_fits(tmp_path):
    path = tmp_path / "fits"
    kept = KeptFits(path)
    kept.put(fit())
    kept.put(fit("b"))
    assert KeptFits(path).found == kept.found
    line = path.read_text().splitlines()[0]
    wrong = [
        "7", "[]", "{}", "x", line.replace('"ndcg@5"', '"more": [1], "ndcg@5"'), line.replace("2.0", "NaN"),
        line.replace('"key": ', '"more": 1, "key": '), line.replace("2.0", '"2"'), "[" * 100_000,
        line.replace("null}", '"failed"}'),
    ]  # fmt: skip
    for text in wrong:
        assert text != line
        path.write_text(f"{line}\n{text}\n")
        with pytest.raises(ValueError, match=r"fits, line 2: not a fit that `sinkprop compare` kept"):
            KeptFits(path)


def invoke(*arguments):
    return CliRunner().invoke(cli.program(), ["compare", *map(str, arguments)])


def test_the_command(tmp_path, monkeypatch):
    queries = small(20)
    save_letor(tmp_path / "mine.txt", queries)
    out = tmp_path / "table.md"
    options = ["--methods", CHEAP, "--sets", tmp_path / "mine.txt", "pydocs", "--folds", "1,2"]
    first = invoke(*options, "--table", out)
    assert first.exit_code == 0, first.output
    text = out.read_text()
    assert text in first.output
    sets = named_sets([tmp_path / "mine.txt", "pydocs"], folds=[1, 2])
    direct = referee(sets, CHEAP, keep=tmp_path / "table.md.fits")
    assert direct.to_markdown() == text
    assert "Mean of NDCG@1, NDCG@3, NDCG@5, NDCG@10 on the test queries" in text
    assert "- mine: 2 folds, 8 test queries" in text
    again = invoke(*options, "--table", out, "--json", tmp_path / "standings.json")
    assert again.exit_code == 0
    assert out.read_text() == text
    assert json.loads((tmp_path / "standings.json").read_text()) == json.loads(direct.to_json())
    alone = invoke(*options, "--keep", tmp_path / "table.md.fits", "--json", "-")
    assert alone.output == direct.to_json()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--sets", "nothing"],
            "'nothing' is neither a file or folder nor a built-in set; built-in sets are",
        ),
        (["--sets", "pydocs", "--methods", "regresion"], "Did you mean 'regression'?"),
        (["--sets", "pydocs", "--metrics", "nothing"], "nothing"),
        (["--sets", "pydocs", "pydocs"], "two data sets have the name 'pydocs'"),
        (["--sets", "pydocs", "--plot", "a.png"], "--plot does not go with --sets"),
        (["--sets", "pydocs", "--against", "regression"], "--against does not go with --sets"),
        (["--sets", "pydocs", "--budget", "0"], "0.0 is not in the range x>0"),
        (["--sets", "pydocs", "--folds", "7"], "pydocs has no fold 7"),
        (["--table", "a.md", "."], "--table needs --sets"),
        (["--budget", "3", "."], "--budget needs --sets"),
        (["nothing"], "Directory 'nothing' does not exist"),
        ([], "Missing argument 'DIR...'"),
    ],
)
def test_wrong_arguments_are_one_clear_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        cli.main(["compare", *arguments])
    out, error = capsys.readouterr()
    assert exit_.value.code == 2
    assert out == ""
    assert error.startswith("sinkprop: ")
    assert error.count("\n") == 1
    assert message in error
