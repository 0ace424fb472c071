"""Click logs and models that several tests of the command line read and do not change."""

from __future__ import annotations

import numpy as np
import pytest


def table_of(log, *, features=True, **more):
    """A click log as an Arrow table, one row per impression, with more columns or without some (None)."""
    pa = pytest.importorskip("pyarrow", reason="click logs are read with pyarrow")
    documents, of_session = log.documents, np.repeat(np.arange(log.n_sessions), log.sizes)
    columns = {
        "session": of_session,
        "query": documents.qid[log.rows],
        "doc": documents.docid[log.rows],
        "position": log.positions,
        "clicked": log.clicked.astype(np.int64),
    }
    if log.policy is not None:
        columns["policy"] = np.array(log.policies)[log.policy[of_session]]
    if features:
        columns |= {name: documents.X[log.rows, j] for j, name in enumerate(documents.feature_names)}
    columns |= more
    return pa.table({name: values for name, values in columns.items() if values is not None})


@pytest.fixture(scope="session")
def click_logs(tmp_path_factory):
    """A folder with logs of simulated users and models.

    ab        Sessions of two rankers, with features; also as ab.csv, and in two parts in the folder parts.
    later     Other sessions of the same rankers and queries.
    fixed     Sessions of one ranker, with features.
    shuffled  Sessions of three rankers that the log does not name, without features.
    swaps     Sessions in which the document of position 1 was exchanged with another.
    bare      The sessions of ab without features, which pages has, also for documents that ab never shows.
    cascade   Sessions of users who leave with their first click.
    one, two  Models of least squares on all features, and on two of them.
    """
    parquet = pytest.importorskip("pyarrow.parquet", reason="click logs are read with pyarrow")
    from pyarrow import csv

    from sinkprop import Queries
    from sinkprop.baselines import RegressionRanker
    from sinkprop.clicks import CascadeModel, PositionBasedModel, simulate_clicks

    folder = tmp_path_factory.mktemp("clicks")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40 * 12, 4)).round(3)
    y = np.digitize(X @ [1, 0.7, 0.4, 0] + 0.5 * rng.normal(size=len(X)), [-0.5, 0.5, 1.5]).astype(float)
    qid = np.repeat(np.arange(1, 41), 12)
    docid = np.array([f"d{i}" for i in range(len(X))])
    queries = Queries(X, y, qid, docid, ("title", "body", "clicks_before", "length"))
    users = PositionBasedModel(1 / np.arange(1, 7))

    def simulated(rankers, n, seed, model=users, **options):
        return simulate_clicks(queries, rankers, n, model, k=6, seed=seed, **options)

    rankers, names = X[:, :2].T, ["old", "new"]
    ab = simulated(rankers, 4000, 0, policies=names)
    logs = {
        "ab": table_of(ab),
        "later": table_of(simulated(rankers, 4000, 1, policies=names)),
        "fixed": table_of(simulated(X[:, 0], 4000, 2), session=None),
        "shuffled": table_of(simulated(rng.random((3, len(X))), 6000, 3), features=False, policy=None),
        "swaps": table_of(simulated(X[:, 0], 6000, 4, swaps="pairs"), features=False),
        "bare": table_of(ab, features=False),
        "cascade": table_of(simulated(rankers, 3000, 5, CascadeModel(), policies=names)),
    }
    for name, table in logs.items():
        parquet.write_table(table, folder / f"{name}.parquet")
    csv.write_csv(logs["ab"], folder / "ab.csv")
    (folder / "parts").mkdir()
    half = 2000 * 6  # rows of the first 2000 sessions
    parquet.write_table(logs["ab"].slice(0, half), folder / "parts/0.parquet")
    parquet.write_table(logs["ab"].slice(half), folder / "parts/1.parquet")
    pages = {"query": qid, "doc": docid} | dict(zip(queries.feature_names, X.T, strict=True))
    parquet.write_table(logs["ab"].from_pydict(pages), folder / "pages.parquet")
    RegressionRanker().fit(queries).save(folder / "one.model")
    some = Queries(X[:, [2, 0]], y, qid, docid, ("clicks_before", "title"))
    RegressionRanker().fit(some).save(folder / "two.model")
    return folder


@pytest.fixture
def altered(click_logs, tmp_path):
    """Function that writes the log ab, changed by a function of its columns {name: array}, and returns it."""
    pa = pytest.importorskip("pyarrow", reason="click logs are read with pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet", reason="click logs are read with pyarrow")

    def write(change, name="altered.parquet"):
        table = parquet.read_table(click_logs / "ab.parquet").slice(0, 6 * 600)
        columns = {name: np.array(table[name].to_numpy()) for name in table.column_names}
        parquet.write_table(pa.table(change(columns)), tmp_path / name)
        return tmp_path / name

    return write
