"""NeuralRanker on several ranks of torch.distributed: real processes, beside the fit of one process."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from places import ROOT

import sinkprop

torch = pytest.importorskip("torch", reason="NeuralRanker needs PyTorch")
pytest.importorskip("pyarrow", reason="stored sets are Arrow files")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

from rank_program import (  # noqa: E402
    IDLE,
    N_FEATURES,
    SHARD_DOCUMENTS,
    SHARED,
    WHOLE,
    Calls,
    of,
    own_queries,
    quick,
    some_queries,
)

from sinkprop.store import save_queries  # noqa: E402
from sinkprop.torch import LBFGS, Adam  # noqa: E402
from sinkprop.torch.neural import feeds  # noqa: E402
from sinkprop.torch.neural import training as fitting  # noqa: E402
from sinkprop.torch.ranker import NeuralRanker  # noqa: E402

HELPERS = ROOT / "tests" / "helpers"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@pytest.fixture(scope="module", autouse=True)
def small_shards():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_SHARD_DOCUMENTS", SHARD_DOCUMENTS)
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    for name, queries in (("train", some_queries()), ("vali", some_queries(12, 9))):
        path = folder / f"{name}.queries"
        save_queries(path, sinkprop.Queries(*queries), block_bytes=40 * 4 * N_FEATURES)
    return folder


@pytest.fixture(scope="module")
def found(folder):
    """What every case came to on each of two ranks, after the program of the docs."""
    X, y, qid = some_queries()
    with pytest.raises(SystemExit):
        quick(checkpoint=folder / "by-one.checkpoint", on_epoch=Calls(2)).fit(X, y, qid=qid)
    page = (ROOT / "docs" / "neural.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n# train\.py\n(.*?)```", page, re.DOTALL).group(1)
    (folder / "train.py").write_text(program.replace('"shared",', '"shared", max_epochs=10,'))
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launcher, str(HELPERS / "rank_program.py"), str(folder)],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    # in the last case rank 1 goes, with an exit code of its own
    assert re.search(r"exitcode\s*: 3 ", done.stderr), done.stderr
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


def same(a, b):
    assert a["weights"].keys() == b["weights"].keys()
    for name, x in a["weights"].items():
        assert torch.equal(x, b["weights"][name]), name
    assert torch.equal(a["shift"], b["shift"])
    assert repr(a["epochs"]) == repr(b["epochs"])
    assert_array_equal(*(np.empty(0) if x["held out"] is None else x["held out"] for x in (a, b)))
    for name in ("status", "validated_on", "sizes"):
        assert a[name] == b[name]


def near(a, b):
    for name, x in a["weights"].items():
        assert_allclose(x, b["weights"][name], rtol=1e-6, atol=1e-8, err_msg=name)
    assert_allclose(a["shift"], b["shift"], rtol=1e-12)
    assert len(a["epochs"]) == len(b["epochs"])
    for x, y in zip(a["epochs"], b["epochs"], strict=True):
        assert_allclose(x[:2], y[:2], rtol=1e-6)
    assert (a["held out"] is None) == (b["held out"] is None)
    if a["held out"] is not None:  # the same queries, in another order
        held = [x["held out"][:, x["held out"][0].argsort()] for x in (a, b)]
        assert_allclose(*held, rtol=1e-6, atol=1e-8)
    for name in ("status", "validated_on", "sizes"):
        assert a[name] == b[name]


class TestTheSameQueriesOnAllRanks:
    @pytest.mark.parametrize("name", SHARED)
    def test_the_network_of_one_process_to_the_last_bit(self, name, found):
        X, y, qid = some_queries()
        expected = of(quick(**SHARED[name]).fit(X, y, qid=qid))
        for rank in found:
            same(rank[f"shared, {name}"], expected)
        if name == "stopped early":
            assert expected["status"] == "stopped early"

    def test_weights_and_validation_queries(self, found):
        X, y, qid = some_queries()
        vali = some_queries(12, 9)
        weight = np.random.default_rng(3).uniform(0, 2, 40) * (np.arange(40) % 4 > 0)
        validation = {"eval_set": [vali[:2]], "eval_qid": [vali[2]]}
        expected = of(quick().fit(X, y, qid=qid, query_weight=weight, **validation))
        for rank in found:
            same(rank["shared, weights"], expected)

    @pytest.mark.parametrize("name", ["held", "streamed"])
    def test_stored_sets(self, name, found, folder, monkeypatch):
        if name == "streamed":
            monkeypatch.setattr(feeds, "HELD_BYTES", 0)
            monkeypatch.setattr(feeds, "WINDOW_BYTES", 90 * 4 * N_FEATURES)
        expected = of(quick().fit(folder / "train.queries", eval_set=[folder / "vali.queries"]))
        for rank in found:
            same(rank[f"stored, {name}"], expected)

    def test_statistics_of_layers_are_averaged(self, found):
        first, second = (rank["batch normalization"] for rank in found)
        same(first, second)
        assert first["weights"]["layers.1.running_var"].gt(0).all()
        assert first["weights"]["layers.1.num_batches_tracked"] > 0

    def test_the_seed_and_the_first_weights_are_those_of_rank_0(self, found):
        same(*(rank["a module"] for rank in found))


class TestQueriesOfTheirOwn:
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("whole", {"validation_fraction": 0}),
            ("held out", {}),
            ("lbfgs", {"optimizer": LBFGS(3)}),
        ],
    )
    def test_gradients_and_criterion_are_means_over_all_queries(self, name, options, found):
        """One step an epoch: the fit of one process to the queries of rank 0, then those of rank 1."""
        X, y, qid = (np.concatenate(parts) for parts in zip(*map(own_queries, (0, 1)), strict=True))
        expected = of(quick(**{**WHOLE, **options}).fit(X, y, qid=qid))
        for rank in found:
            near(rank[f"own, {name}"], expected)
        same(*(rank[f"own, {name}"] for rank in found))

    def test_each_rank_has_validation_queries(self, found):
        X, y, qid = (np.concatenate(parts) for parts in zip(*map(own_queries, (0, 1)), strict=True))
        vali = some_queries(12, 9)
        expected = of(quick(**WHOLE).fit(X, y, qid=qid, eval_set=[vali[:2]], eval_qid=[vali[2]]))
        for rank in found:
            near(rank["own, validated"], expected)

    def test_minibatches_of_ranks_with_one_query_and_with_many(self, found):
        first, second = (rank["own, minibatches"] for rank in found)
        same(first, second)
        assert first["sizes"] == (len(some_queries()[1]), 40)
        assert first["epochs"][-1][0] < first["epochs"][0][0]

    def test_a_rank_whose_only_query_is_held_out(self, found):
        X, y, qid = (np.concatenate(parts) for parts in zip(*map(own_queries, (0, 1)), strict=True))
        expected = of(quick(random_state=IDLE, **WHOLE).fit(X, y, qid=qid))
        for rank in found:
            near(rank["own, idle"], expected)
        same(*(rank["own, idle, minibatches"] for rank in found))

    def test_stored_sets_that_are_streamed(self, found):
        first, second = (rank["own, stored"] for rank in found)
        same(first, second)
        assert first["sizes"][1] == 40 + 12


class TestFiles:
    def test_rank_0_writes(self, found, folder):
        assert (folder / "saved-by-0.safetensors").exists()
        assert not (folder / "saved-by-1.safetensors").exists()
        assert [rank["epochs told"] for rank in found] == [4, 0]
        saved = sinkprop.load_model(folder / "saved-by-0.safetensors")
        same(found[0]["saved"], found[1]["saved"])
        for name, x in saved.module_.state_dict().items():
            assert torch.equal(x, found[0]["saved"]["weights"][name])

    def test_a_checkpoint_of_two_ranks_is_taken_up_by_one(self, found, folder):
        X, y, qid = some_queries()
        assert [rank["cut"]["error"] for rank in found] == ["SystemExit", "RankError"]
        assert found[1]["cut"]["says"].startswith("rank 0 of 2: SystemExit")
        assert found[0]["checkpoint is there"]
        checkpoint = folder / "by-ranks.checkpoint"
        ranker = quick(checkpoint=checkpoint, on_epoch=(calls := Calls())).fit(X, y, qid=qid)
        same(of(ranker), of(quick().fit(X, y, qid=qid)))
        assert calls.n == 2
        assert not checkpoint.exists()

    def test_a_checkpoint_of_one_process_is_taken_up_by_two_ranks(self, found, folder):
        X, y, qid = some_queries()
        expected = of(quick().fit(X, y, qid=qid))
        for rank in found:
            same(rank["resumed"], expected)
        assert not (folder / "by-one.checkpoint").exists()


class TestErrors:
    """An error on one rank ends the fit on all, with a line that names the rank."""

    @pytest.mark.parametrize(
        ("name", "own", "line"),
        [
            (
                "bad data",
                "ValueError",
                "ValueError: X must be finite, or NaN for missing; row 11, column 3 holds inf",
            ),
            ("bad parameter", "ValueError", "ValueError: max_epochs must be at least 1"),
            ("error", "OSError", "OSError: the disk is gone"),
            # an interrupt of the other at the same time, after which it would go on by itself
            ("two errors", "OSError", "OSError: the disk is gone"),
        ],
    )
    def test_on_one_rank(self, name, own, line, found):
        first, second = (rank[name] for rank in found)
        assert (first["error"], second["error"]) == ("RankError", own)
        assert first["says"].startswith(f"rank 1 of 2: {line}")
        assert "\n" not in first["says"]
        assert first["says"].endswith(second["says"])

    @pytest.mark.parametrize(
        ("name", "line"),
        [
            ("other parameters", "all ranks must have the same parameters"),
            ("other network", "all ranks must have the same parameters"),
            ("other optimizer", "all ranks must have the same parameters"),
            (
                "other features",
                "all ranks must have the same number of features, but rank 0 has 5 and rank 1 has 4.",
            ),
            ("other data", "all ranks must have the same queries"),
            ("other version", "and rank 1 has 0.0.1."),
            ("only one validates", "all ranks must have the same eval_set (given or not)"),
        ],
    )
    def test_what_is_not_the_same_is_named_on_all_ranks(self, name, line, found):
        first, second = (rank[name] for rank in found)
        assert first["error"] == second["error"] == "ValueError"
        assert first["says"] == second["says"]
        assert line in first["says"]
        assert "\n" not in first["says"]

    def test_an_overflow_leaves_the_best_network_on_all_ranks(self, found):
        first, second = (rank["overflow"] for rank in found)
        assert first["error"] == second["error"] == "NetworkOverflowError"
        assert "rank 1 of 2: the gradients of the network became NaN" in first["says"]
        assert first["fitted"]["status"] == "overflowed"
        same(first["fitted"], second["fitted"])

    def test_an_interrupt_of_one_rank_ends_all_with_the_best_network(self, found):
        first, second = (rank["interrupt"] for rank in found)
        assert first["status"] == second["status"] == "interrupted"
        assert 1 <= len(first["epochs"]) < 30
        same(first, second)

    def test_an_error_of_on_epoch(self, found):
        first, second = (rank["an error of on_epoch"] for rank in found)
        assert (first["error"], second["error"]) == ("SystemExit", "RankError")

    def test_the_next_fit_is_as_if_nothing_had_been(self, found):
        for rank in found:
            same(rank["after all that"], rank["shared, adam"])

    def test_a_rank_that_goes_is_missed(self, found):
        assert found[0]["gone"]["error"] == "RankError"
        assert "another rank has ended" in found[0]["gone"]["says"]
        assert "\n" not in found[0]["gone"]["says"]

    def test_without_several_processes(self):
        X, y, qid = some_queries()
        with pytest.raises(ValueError, match="start the program by torchrun"):
            quick(distributed="shared").fit(X, y, qid=qid)
        with pytest.raises(ValueError, match="distributed must be None, 'shared'"):
            quick(distributed=True).fit(X, y, qid=qid)


def test_the_program_of_the_docs(found, folder, monkeypatch):
    monkeypatch.setattr(fitting, "_SHARD_DOCUMENTS", 2048)
    ranker = NeuralRanker(optimizer=Adam(batch_documents=16_384), max_epochs=10)
    ranker.fit(folder / "train.queries", eval_set=[folder / "vali.queries"])
    saved = sinkprop.load_model(folder / "model.safetensors")
    for name, x in ranker.module_.state_dict().items():
        assert torch.equal(saved.module_.state_dict()[name], x), name
    assert not (folder / "fit.checkpoint").exists()
