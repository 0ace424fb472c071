"""The effect of rounding on test means: fits with features multiplied by constants.

    python benchmarks/rounding.py OHSUMED                     SinkPropRanker and SmoothRank, five folds
    python benchmarks/rounding.py OHSUMED --methods sinkprop --factors 1,3,5

Features are standardized before a fit, so a constant factor changes only the last bits of every quantity. A
different compiler, processor or version of the library has the same effect. The objective has many local
maxima, and a choice among them on few queries can go either way. The spread of the printed means shows how
much such differences can change a result. Powers of two change no bit; a factor of 1 leaves the data
unchanged.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from sinkprop import Fold
from sinkprop.experiment import compare, find_data_sets

METRICS = ("ndcg@1", "ndcg@3", "ndcg@5", "ndcg@10", "map")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, metavar="DIR", help="folder with the folds of LETOR data")
    parser.add_argument(
        "--methods", default="sinkprop,smoothrank", help="methods to fit  [default: sinkprop,smoothrank]"
    )
    parser.add_argument(
        "--factors", default="1,3,5,7,11,13", help="constant factors  [default: 1,3,5,7,11,13]"
    )
    options = parser.parse_args()
    (data,) = find_data_sets(options.data)
    parts = [(files.name, files.read()) for files in data.folds]
    found = []
    for factor in map(float, options.factors.split(",")):
        folds = [
            Fold(name, *(replace(p, X=p.X * factor) for p in (own.train, own.vali, own.test)))
            for name, own in parts
        ]
        means = compare(folds, options.methods, metrics=METRICS, convention="letor").means("data")
        found.append([[means[method][metric] for metric in METRICS] for method in means])
        for method, values in means.items():
            row = "  ".join(f"{values[m]:.4f}" for m in METRICS)
            print(f"{method:16s} x {factor:<4g} {row}", flush=True)
    table = np.array(found)  # shape (factors, methods, metrics)
    print(f"{'':23s} " + "  ".join(f"{metric:>6s}" for metric in METRICS))
    for i, method in enumerate(means):
        for word, row in (("mean", table[:, i].mean(0)), ("deviation", table[:, i].std(0, ddof=1))):
            print(f"{method:12s} {word:10s} " + "  ".join(f"{x:.4f}" for x in row))


if __name__ == "__main__":
    main()
