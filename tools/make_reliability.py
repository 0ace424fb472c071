#!/usr/bin/env python3
"""The picture of docs/how-sure.md: reliability.png, before and after calibration, on simulated queries.

make_reliability.py [DIR]      DIR is docs/images by default
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from sinkprop import SinkPropRanker
from sinkprop.calibration import CalibrationReport, calibration_report
from sinkprop.datasets import make_ranking
from sinkprop.plot import reliability_diagrams

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"


def simulated() -> CalibrationReport:
    """A ranker of 200 training queries, calibrated on 400, and compared with the labels of 600 others."""
    queries = make_ranking(1200, random_state=0)
    parts = np.split(np.unique(queries.qid), [200, 600])
    train, vali, test = (queries.select(ids) for ids in parts)
    ranker = SinkPropRanker(penalty=1e-3, selection="validation").fit(train, eval_set=vali)
    sigma = ranker.relaxation_.sigma
    return calibration_report(ranker.calibration_, ranker.predict(test), test.y, test.qid, sigma=sigma)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES, help="folder for the image")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    report, path = simulated(), folder / "reliability.png"
    events = ["top 5", "first is best", "label >= 1"]
    reliability_diagrams(report, events).figure.savefig(path, dpi=80)
    for event, before, after in report.events():
        print(f"{event}: error {'-' if before is None else f'{before.error:.3f}'}, {after.error:.3f}")
    print(report.log_scores)
    print(f"{path}: {path.stat().st_size / 1000:.0f} KB")


if __name__ == "__main__":
    main()
