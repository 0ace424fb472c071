"""What each rank of tests/torch/test_processes.py runs: torchrun --nproc-per-node 2 rank_program.py FOLDER.

Every case is fitted by all ranks together; what came of it is written to FOLDER/rank-RANK.pt.
"""

import os
import signal
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist

import sinkprop
from sinkprop.torch import LBFGS, MLP, Adam, ListTransformer
from sinkprop.torch.neural import checkpoints, feeds
from sinkprop.torch.neural import training as fitting
from sinkprop.torch.neural.processes import Processes
from sinkprop.torch.ranker import NeuralRanker

SHARD_DOCUMENTS = 30
N_FEATURES = 5


def some_queries(n_queries=40, seed=0):
    """Labels 0 to 2 by the first two of five features and noise; queries of 1 to 14 documents."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 15, n_queries)
    X = (3 * rng.normal(size=(sizes.sum(), N_FEATURES))).astype(np.float32)
    y = np.digitize(X[:, 0] + X[:, 1] / 2 + rng.normal(size=len(X)), [0.5, 3]).astype(float)
    return X, y, np.repeat(np.arange(n_queries), sizes)


def own_queries(rank):
    """Those of a rank where each has its own: 39, and one of 14 documents."""
    X, y, qid = some_queries()
    mine = (qid == 0) == (rank == 1)
    assert np.unique(qid[mine]).size == (1 if rank else 39)
    return X[mine], y[mine], qid[mine]


ADAM = Adam(1e-2, batch_documents=150)


def quick(**options):
    settings = {"network": MLP((8,), dropout=0.2), "optimizer": ADAM, "max_epochs": 4}
    return NeuralRanker(**{**settings, **options})


# fits whose network is that of one process, to the last bit
SHARED = {
    "adam": {},
    "query": {"normalization": "query", "optimizer": replace(ADAM, schedule="cosine"), "n_threads": 2},
    "stopped early": {"max_epochs": 40, "patience": 1},
    "attention": {"network": ListTransformer(8)},
    "two networks": {"n_networks": 2, "input_noise": 0.3},
    "lbfgs": {"optimizer": LBFGS(3, weight_decay=1e-3), "max_epochs": 2},
    "small minibatches": {"optimizer": replace(ADAM, batch_documents=20), "validation_fraction": 0},
    "torch's dropout": {
        "network": lambda n: torch.nn.Sequential(
            torch.nn.Linear(n, 8), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(8, 1)
        )
    },
}
# one step an epoch, and nothing drawn: to rounding, the network of one process that has all queries
WHOLE = {
    "network": MLP((8,), dropout=0.0), "optimizer": replace(ADAM, batch_documents=10**6), "dtype": "float64"
}  # fmt: skip
# a seed by which the one query of rank 1, the last of 40, is among the 8 that are held out
IDLE = next(seed for seed in range(100) if 39 in np.random.default_rng([seed, 0]).permutation(40)[:8])


def outcome(fit):
    """What a fit came to, as plain data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        try:
            ranker = fit()
        except BaseException as error:
            fitted = getattr(error, "ranker", None)
            fitted = of(fitted) if hasattr(fitted, "fit_result_") else None
            return {"error": type(error).__name__, "says": str(error), "fitted": fitted}
    return of(ranker)


def of(ranker):
    r, held = ranker.fit_result_, ranker._calibrating
    return {
        "weights": dict(ranker.module_.state_dict()),
        "epochs": [(e.loss, e.criterion, e.training, e.chosen) for e in r.epochs],
        "status": r.status,
        "validated_on": r.validated_on,
        "sizes": (ranker.n_rows_, ranker.n_queries_),
        "shift": torch.tensor(ranker.scaling_.shift),
        "held out": None if held is None else torch.tensor(np.stack([held.scores, held.labels])),
    }


def overflowing(ranker, data):
    try:
        ranker.fit(*data[:2], qid=data[2])
    except Exception as error:
        error.ranker = ranker
        raise


def two_errors(rank):
    with Processes(own=False).together():
        raise OSError("the disk is gone") if rank else KeyboardInterrupt


class Failing:
    """A loss of which one rank's fails, or is NaN, or interrupts, after some calls."""

    def __init__(self, rank, calls, how):
        self.left, self.how = calls if dist.get_rank() == rank else -1, how

    def __call__(self, scores, labels, *, offsets, query_weight=None):
        self.left -= 1
        loss = (scores - labels.to(scores.dtype)).square().mean()
        if self.left != 0:
            return loss
        if self.how == "error":
            raise OSError("the disk is gone")
        if self.how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        if self.how == "exit":
            os._exit(3)
        return loss * float("nan") if self.how == "overflow" else loss


class Calls:
    """An `on_epoch` that counts, and ends the fit after some."""

    def __init__(self, end_after=None):
        self.n, self._end_after = 0, end_after

    def __call__(self, epoch):
        self.n += 1
        if self.n == self._end_after:
            raise SystemExit


def main():
    folder = Path(sys.argv[1])
    os.chdir(folder)
    exec(compile(Path("train.py").read_text(), "train.py", "exec"), {"__name__": "__main__"})
    rank = dist.get_rank()  # of the group that the first fit has begun
    fitting._SHARD_DOCUMENTS = SHARD_DOCUMENTS
    checkpoints._TIMES = 0  # written after every epoch
    X, y, qid = data = some_queries()
    mine = own_queries(rank)
    found = {}

    def run(name, ranker, queries=data, **more):
        found[name] = outcome(lambda: ranker.fit(*queries[:2], qid=queries[2], **more))
        return ranker

    for name, options in SHARED.items():
        run(f"shared, {name}", quick(distributed="shared", **options))
    vali = some_queries(12, 9)
    weight = np.random.default_rng(3).uniform(0, 2, 40) * (np.arange(40) % 4 > 0)
    validation = {"eval_set": [vali[:2]], "eval_qid": [vali[2]]}
    run("shared, weights", quick(distributed="shared"), query_weight=weight, **validation)
    for name in ("held", "streamed"):
        if name == "streamed":
            feeds.HELD_BYTES, feeds.WINDOW_BYTES = 0, 90 * 4 * N_FEATURES
        ranker = quick(distributed="shared")
        found[f"stored, {name}"] = outcome(
            lambda ranker=ranker: ranker.fit(folder / "train.queries", eval_set=[folder / "vali.queries"])
        )
    batch, sixty = MLP((8,), dropout=0.2, layer_normalization="batch"), replace(ADAM, batch_documents=60)
    run("batch normalization", quick(distributed="shared", network=batch, optimizer=sixty))
    torch.manual_seed(rank)
    run("a module", quick(distributed="shared", network=torch.nn.Linear(N_FEATURES, 1), random_state=None))

    run("own, whole", quick(distributed="own", validation_fraction=0, **WHOLE), mine)
    run("own, held out", quick(distributed="own", **WHOLE), mine)
    half = [part[vali[2] % 2 == rank] for part in vali]
    more = {"eval_set": [half[:2]], "eval_qid": [half[2]]}
    run("own, validated", quick(distributed="own", **WHOLE), mine, **more)
    forty = replace(ADAM, batch_documents=40)
    run("own, minibatches", quick(distributed="own", optimizer=forty, max_epochs=12), mine)
    run("own, lbfgs", quick(distributed="own", **{**WHOLE, "optimizer": LBFGS(3)}), mine)
    run("own, idle", quick(distributed="own", random_state=IDLE, **WHOLE), mine)
    run("own, idle, minibatches", quick(distributed="own", random_state=IDLE), mine)
    stored = quick(distributed="own", validation_fraction=0, optimizer=forty)
    found["own, stored"] = outcome(lambda: stored.fit(folder / ("vali.queries" if rank else "train.queries")))

    calls = Calls()
    ranker = run("saved", quick(distributed="shared", on_epoch=calls), data)
    ranker.save(folder / f"saved-by-{rank}.safetensors")
    found["epochs told"] = calls.n
    checkpoint = folder / "by-ranks.checkpoint"
    run("cut", quick(distributed="shared", checkpoint=checkpoint, on_epoch=Calls(2)), data)
    found["checkpoint is there"] = checkpoint.exists()
    run("resumed", quick(distributed="shared", checkpoint=folder / "by-one.checkpoint"), data)

    bad = X.copy()
    bad[11, 3] = np.inf
    run("bad data", quick(distributed="shared"), (bad if rank == 1 else X, y, qid))
    run("bad parameter", quick(distributed="shared", max_epochs=0 if rank == 1 else 4))
    run("other parameters", quick(distributed="shared", patience=3 + rank))
    run("other network", quick(distributed="shared", network=MLP((8,), dropout=0.1 * rank)))
    run("other optimizer", quick(distributed="shared", optimizer=Adam(0.01 * (1 + rank))))
    run("other features", quick(distributed="own"), (mine[0][:, : N_FEATURES - rank], *mine[1:]))
    run("other data", quick(distributed="shared"), (X, np.where(np.arange(len(y)) == 5, rank, y), qid))
    version = sinkprop.__version__
    sinkprop.__version__ = "0.0.1" if rank == 1 else version
    run("other version", quick(distributed="shared"))
    sinkprop.__version__ = version
    run("only one validates", quick(distributed="own"), mine, **({} if rank else more))
    for how in ("error", "overflow", "interrupt"):
        ranker = quick(loss=Failing(1, 9, how), distributed="shared", max_epochs=30)
        found[how] = outcome(lambda ranker=ranker: overflowing(ranker, data) or ranker)
    ranker = quick(distributed="shared", on_epoch=Calls(2))
    run("an error of on_epoch", ranker)
    found["two errors"] = outcome(lambda: two_errors(rank))
    run("after all that", quick(distributed="shared"))
    torch.save(found, folder / f"rank-{rank}.pt")

    # The last: a rank that goes leaves no group, and torchrun ends the others.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    found["gone"] = outcome(
        lambda: quick(loss=Failing(1, 9, "exit"), distributed="shared").fit(X, y, qid=qid)
    )
    torch.save(found, folder / f"rank-{rank}.pt")
    os._exit(0)  # without a farewell to the one that is gone


if __name__ == "__main__":
    main()
