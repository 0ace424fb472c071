"""False alarms and power of `sinkprop.drift`: comparisons of random halves, and of planted changes.

Without a change, the queries of a set are divided at random into a reference and new queries, again and
again. At most 5 % of the comparisons may have a mark. With a planted change, the share with a mark is the
power. Real sets are given as folders with LETOR text, such as S1.txt ... S5.txt.

    python benchmarks/drift.py [--runs 300] [name=folder ...]
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import numpy as np

from sinkprop import Queries, datasets, load_letor
from sinkprop.baselines import RegressionRanker
from sinkprop.drift import compare, reference

SHARES = (0.5, 0.1)  # of the queries that are new
CHANGES = (
    "none",
    "unit of one feature x 1.3",
    "30 % of one feature missing",
    "labels one grade lower",
    "long queries",
)


def sets(folders: list[str]) -> dict[str, Queries]:
    """The queries of the folders; without folders, the bundled and simulated ones."""
    fold = datasets.load_pydocs(1)
    whole = (
        {}
        if folders
        else {
            "pydocs": joined([fold.train, fold.vali, fold.test]),
            "simulated": datasets.make_ranking(400, random_state=0),
        }
    )
    for text in folders:
        name, _, folder = text.partition("=")
        files = sorted(p for p in Path(folder).iterdir() if ".txt" in p.name)
        whole[name] = joined([load_letor(path, allow_nan=True) for path in files])
    return whole


def joined(parts: list[Queries]) -> Queries:
    """Queries of several parts, whose ids are different."""
    width = max(part.n_features for part in parts)
    X = np.concatenate([np.pad(p.X, ((0, 0), (0, width - p.n_features))) for p in parts])
    qid = np.concatenate([[f"{i}-{q}" for q in p.qid.tolist()] for i, p in enumerate(parts)])
    return Queries(X, np.concatenate([p.y for p in parts]), qid, allow_nan=True)


def taken(queries: Queries, chosen: np.ndarray) -> Queries:
    return queries.take(np.flatnonzero(np.isin(queries.groups.codes, chosen)))


def changed(queries: Queries, change: str, rng: np.random.Generator) -> Queries:
    """Queries with a planted change."""
    X, y = queries.X.copy(), queries.y
    column = int(rng.choice(np.flatnonzero(np.nanstd(X, axis=0) > 0)))
    if change.startswith("unit"):
        X[:, column] *= 1.3
    elif change.startswith("30"):
        X[rng.random(len(X)) < 0.3, column] = np.nan
    elif change.startswith("labels"):
        y = np.maximum(y - 1, 0)
    return dataclasses.replace(queries, X=X, y=y, allow_nan=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("sets", nargs="*")
    arguments = parser.parse_args()
    print("| data | queries | then : now | " + " | ".join(CHANGES) + " |")
    print("|---" * (3 + len(CHANGES)) + "|")
    for name, queries in sets(arguments.sets).items():
        n = queries.n_queries
        order = np.random.default_rng(0).permutation(n)
        train, rest = taken(queries, order[: n // 4]), order[n // 4 :]
        ranker = RegressionRanker(penalty=0.1, normalization="standard", missing="indicator").fit(train)
        ranker.calibrate(taken(queries, order[n // 8 : n // 4]))
        for share in SHARES:
            marks = dict.fromkeys(CHANGES, 0)
            runs = {c: arguments.runs if c == "none" else max(arguments.runs // 10, 1) for c in CHANGES}
            m = max(int(share * len(rest)), 10)
            for seed in range(arguments.runs):
                rng = np.random.default_rng([seed, m])
                drawn = rng.permutation(rest)
                new, old = drawn[:m], drawn[m:]
                then = reference(ranker, taken(queries, old), metrics="ndcg@1,ndcg@10,map")
                for change in CHANGES:
                    if seed >= runs[change]:
                        continue
                    if change == "long queries":
                        longest = rest[np.argsort(-queries.groups.sizes[rest], kind="stable")]
                        others = taken(queries, longest[m:])
                        found = compare(reference(ranker, others), ranker, taken(queries, longest[:m]))
                    else:
                        found = compare(then, ranker, changed(taken(queries, new), change, rng))
                    marks[change] += bool(found.beyond_chance)
            cells = " | ".join(f"{marks[c] / runs[c]:.3f}" for c in CHANGES)
            print(f"| {name} | {len(rest)} | {len(rest) - m} : {m} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
