"""What the program imports, and the functions behind its commands, called without a command line."""

import json
import pkgutil
import subprocess
import sys

import click
import numpy as np
import pytest

import sinkprop
from sinkprop import cli
from sinkprop.baselines import RegressionRanker
from sinkprop.cli.commands import COMMANDS
from sinkprop.cli.evaluate import evaluated
from sinkprop.cli.evaluation.options import System
from sinkprop.cli.export import compare_scores, export_ranker
from sinkprop.cli.options import comma_separated, keep_apart, parsed_by, whole_number
from sinkprop.cli.predict import predictions
from sinkprop.cli.reading import Reading
from sinkprop.cli.report import report_on_systems
from sinkprop.cli.train import new_ranker, train_on_files


def loaded_after(*arguments: str) -> set[str]:
    """All modules that the program has loaded at its end."""
    code = (
        "import json, sys\n"
        "from sinkprop.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert end.code == 0, end\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: sinkprop")
    return set(json.loads(done.stdout.splitlines()[-1]))


def packages(modules: set[str]) -> set[str]:
    return {name.split(".")[1] for name in modules if name.startswith("sinkprop.")}


def test_a_command_is_imported_alone():
    loaded = loaded_after("train", "--help")
    assert "sinkprop.cli.train" in loaded
    assert not packages(loaded) & {"experiment", "store", "report", "export", "baselines", "datasets"}
    assert not {f"sinkprop.cli.{name}" for name in COMMANDS if name != "train"} & loaded
    assert not {"sklearn", "scipy", "rich", "lightgbm", "distributed", "pyarrow"} & loaded


def test_the_overview_imports_no_command():
    loaded = loaded_after("--help")
    assert "sinkprop.cli.commands" in loaded
    assert not {f"sinkprop.cli.{name}" for name in COMMANDS} & loaded


def test_the_package_is_imported_without_click():
    code = "import sys; sys.modules['click'] = sys.modules['rich'] = None; import sinkprop.cli"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_table_of_commands_agrees_with_the_commands():
    group = cli.program()
    assert list(group.commands) == group.list_commands(click.Context(group)) == list(COMMANDS)
    for name, short_help in COMMANDS.items():
        command = group.commands[name]
        assert (command.name, command.short_help) == (name, short_help)
        assert not command.hidden
    assert group.commands.get("rank") is None
    modules = {module.name for module in pkgutil.iter_modules(cli.__path__)}
    commands = {
        name for name in modules if hasattr(getattr(cli, name, None), f"{name}_command")
    }  # all were imported just now
    assert commands == set(COMMANDS)


@pytest.fixture(scope="module")
def queries():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(3)
    y = np.digitize(X @ [3, 2, 1] + rng.normal(size=60), [1.0, 3.0]).astype(float)
    return sinkprop.Queries(X, y, np.repeat(np.arange(1, 7), 10))


@pytest.fixture
def data(queries, tmp_path):
    sinkprop.save_letor(tmp_path / "data.txt", queries)
    return tmp_path / "data.txt"


@pytest.fixture
def model(queries, tmp_path):
    RegressionRanker().fit(queries.X, queries.y, qid=queries.qid).save(tmp_path / "m.model")
    return tmp_path / "m.model"


def test_training_gives_its_record(queries, data, tmp_path, capsys):
    options = {"seed": 0, "threads": 1, "cluster": None, "checkpoint": None, "resample": 0, "gain": "p@3"}
    choice = {"selection": "validation", "criterion": None, "penalty": (1e-3,), "relaxation": "laplace"}
    ranker = new_ranker("sinkprop", metric="map", normalization="none", **options, **choice)
    assert isinstance(ranker, sinkprop.SinkPropRanker)
    assert (ranker.gain, ranker.penalty, ranker.normalization) == ("p@3", (1e-3,), "none")
    record = train_on_files(ranker, data, tmp_path / "new.model", Reading())
    assert record["data"]["train"] == {"file": str(data), "rows": 60, "queries": 6, "features": 3}
    saved = sinkprop.load_model(tmp_path / "new.model")
    score = saved.score(queries.X, queries.y, qid=queries.qid)
    assert record["metrics"]["training"]["model"] == score
    assert capsys.readouterr() == ("", "")


def test_evaluating_gives_the_evaluation(queries, data, model, capsys):
    found = evaluated(data, Reading(), System("model", str(model)), metrics="ndcg@3,map", ties="worst")
    ranker = sinkprop.load_model(model)
    scores = ranker.predict(queries.X)
    expected = sinkprop.evaluate(queries.y, scores, queries.qid, "ndcg@3,map", ties="worst")
    assert dict(found.result) == dict(expected)
    assert (found.name, found.by) == (str(data), f"the model {model}")
    by_feature = evaluated(data, Reading(), System("feature", "2"))
    assert dict(by_feature.result) != dict(found.result)
    assert capsys.readouterr() == ("", "")


def test_predicting_gives_texts(queries, data, model):
    scores = sinkprop.load_model(model).predict(queries.X)
    assert "".join(predictions(model, data, Reading())) == "".join(f"{x!r}\n" for x in scores.tolist())
    with pytest.raises(click.UsageError, match="MODEL comes first"):
        predictions(data, model, Reading())


def test_a_report_is_data(data, model):
    found = report_on_systems(
        data, [System("model", str(model), "mine")], Reading(), metrics="map", title="A title"
    )
    assert found["title"] == "A title"
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_an_export_is_compared_with_the_model(data, model):
    ranker = sinkprop.load_model(model)
    found = export_ranker(ranker, format="solr", name="m")
    lines, wrong = compare_scores(found, ranker, model, data, Reading())
    assert wrong == ""
    assert "6 queries, 60 documents" in lines[0]
    with pytest.raises(ValueError, match="must name the 3 features"):
        export_ranker(ranker, format="solr", name="m", features=["one"])


def test_checks_of_options():
    context = option = None
    folds = comma_separated(whole_number, "a fold.")
    assert folds(context, option, " 1,20") == (1, 20)
    assert folds(context, option, None) is None
    for wrong in ("0", "1,", "-1", "1.0", "²", "9" * 5000):
        with pytest.raises(click.BadParameter, match="is not a fold"):
            folds(context, option, wrong)
    metric = parsed_by(sinkprop.parse_metric)
    assert metric(context, option, "ndcg@3") == "ndcg@3"
    assert metric(context, option, None) is None
    with pytest.raises(click.BadParameter):
        metric(context, option, "ndgc")


def test_files_are_kept_apart_without_a_command(tmp_path):
    keep_apart({"--out": tmp_path / "a"}, {"DATA": tmp_path / "b", "--group": None})
    with pytest.raises(click.UsageError, match="--out and DATA are the same file"):
        keep_apart({"--out": tmp_path / "a"}, {"DATA": tmp_path / "a"})
