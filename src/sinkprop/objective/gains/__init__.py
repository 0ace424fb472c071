"""Gains: what rankings are worth. Rank-linear gains, functions of columns and rows of Pi, and their sums.

Larger is better. A gain has a text form that means the same in code, on the command line and in reports:

>>> parse_gain("ndcg@10")
NDCG(k=10, discount=None, gain='exponential')
>>> str(NDCG(10, discount="log2"))
'ndcg(discount=log2)@10'

The discount of NDCG may be left open. A ranker then trains with the discount of its convention, so that it
maximizes the metric by which it is evaluated; `as_gain` fills it in.
"""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names
from sinkprop.objective.gains.base import Gain, GainSum, OnLabels, Term, bound
from sinkprop.objective.gains.parsing import FORMS, as_gain, as_rank_linear, parse_gain
from sinkprop.objective.gains.rank_linear import NDCG, RBP, Precision, RankLinear, RankLinearGain

if TYPE_CHECKING:
    from sinkprop.objective.gains.columns import (
        ERR,
        ERRIA,
        AlphaNDCG,
        AveragePrecision,
        FMeasure,
        Recall,
        ReciprocalRank,
    )
    from sinkprop.objective.gains.custom import ColumnGain, RowGain
    from sinkprop.objective.gains.rows import ExpectedExposure, ExposureGap

__all__ = [
    "ERR",
    "ERRIA",
    "FORMS",
    "NDCG",
    "RBP",
    "AlphaNDCG",
    "AveragePrecision",
    "ColumnGain",
    "ExpectedExposure",
    "ExposureGap",
    "FMeasure",
    "Gain",
    "GainSum",
    "OnLabels",
    "Precision",
    "RankLinear",
    "RankLinearGain",
    "Recall",
    "ReciprocalRank",
    "RowGain",
    "Term",
    "as_gain",
    "as_rank_linear",
    "bound",
    "parse_gain",
]

_COLUMNS = ("ERR", "ERRIA", "AlphaNDCG", "AveragePrecision", "FMeasure", "Recall", "ReciprocalRank")
_LAZY = {
    **dict.fromkeys(_COLUMNS, "sinkprop.objective.gains.columns"),
    **dict.fromkeys(("ColumnGain", "RowGain"), "sinkprop.objective.gains.custom"),
    **dict.fromkeys(("ExpectedExposure", "ExposureGap"), "sinkprop.objective.gains.rows"),
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
