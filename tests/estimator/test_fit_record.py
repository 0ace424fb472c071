"""Records of fits, printed: a few lines that say what was chosen, by what, and why the fit ended."""

from __future__ import annotations

import math

import numpy as np
import pytest

from sinkprop.estimator.fit_record import FitRecord
from sinkprop.estimator.tuning import Trial, TuningResult
from sinkprop.gbdt.growing.loop import BoostingFit
from sinkprop.linear.records import FitResult, Stage

LEAST_SQUARES = Stage(math.inf, None, 0.1, 0.5, seconds=0.25)
STAGE = Stage(1e-3, 0.5, 0.2, 0.61234, seconds=1.5)
VALIDATED = ("ndcg@1-10", "21 validation queries")


def stages(chosen):
    from dataclasses import replace

    found = [LEAST_SQUARES, STAGE]
    found[chosen] = replace(found[chosen], chosen=True)
    return tuple(found)


RECORDS = {
    "stages": (
        FitResult("finished", *VALIDATED, np.zeros(3), 0.5, stages(1)),
        """FitResult: Every stage was run or stopped early by its criterion.
  chosen: penalty 0.001, sigma 0.5; one of 2 stages
  criterion: ndcg@1-10 0.6123, on 21 validation queries
  time: 1.8 seconds""",
    ),
    "least squares": (
        FitResult("interrupted", *VALIDATED, np.zeros(3), None, stages(0)),
        """FitResult: The fit was interrupted; the model is the best of the stages that were finished.
  chosen: the regression, because no later stage was better; one of 2 stages
  criterion: ndcg@1-10 0.5000, on 21 validation queries
  time: 1.8 seconds""",
    ),
    "one candidate": (
        TuningResult("finished", "ndcg@1-10", "", (Trial({"penalty": 0.0}, 1.0, chosen=True),)),
        """TuningResult: Every candidate was trained.
  chosen: penalty 0""",
    ),
    "candidates": (
        TuningResult(
            "finished",
            *VALIDATED,
            (Trial({"penalty": 1.0}, 1.0, 0.3), Trial({"penalty": 0.1, "round": 20}, 1.0, 0.4, chosen=True)),
        ),
        """TuningResult: Every candidate was trained.
  chosen: penalty 0.1, round 20; one of 2 candidates
  criterion: ndcg@1-10 0.4000, on 21 validation queries""",
    ),
    "trees": (
        BoostingFit("stopped early", *VALIDATED, (0.1, 0.3, 0.2), 3, 2),
        """BoostingFit: The criterion had stopped rising; the trees are those up to its best round.
  chosen: the trees up to round 2 of 3
  criterion: ndcg@1-10 0.3000, on 21 validation queries""",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_prints_as_a_few_lines(name):
    record, text = RECORDS[name]
    assert repr(record) == str(record) == text


def test_a_network_prints_its_epoch():
    pytest.importorskip("torch")
    from sinkprop.torch.neural.records import Epoch, NetworkFit

    epochs = (
        Epoch(1.0, 0.5, None, 0.5),
        Epoch(0.9, 0.6, None, 0.5, chosen=True),
        Epoch(0.8, 0.55, None, 0.5),
    )
    assert str(NetworkFit("stopped early", *VALIDATED, epochs)).splitlines()[1:] == [
        "  chosen: epoch 2 of 3",
        "  criterion: ndcg@1-10 0.6000, on 21 validation queries",
        "  time: 1.5 seconds",
    ]
    assert not any(kind.__dataclass_params__.repr for kind in FitRecord.__subclasses__())
