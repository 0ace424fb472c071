"""Comparison of ranking methods on folds of data; rankers are used only through their public methods.

`find_data_sets` finds the folds of LETOR and similar data sets on disk, and `compare` runs methods on them.
The result is a `Comparison`, which holds every metric of every query, means over folds, confidence intervals
and paired tests.

>>> from sinkprop.experiment import METHODS, compare, find_data_sets
>>> list(METHODS)[:2]
['regression', 'sinkprop']
"""

from sinkprop.experiment.folds.files import DataSet, FoldFiles, Parts
from sinkprop.experiment.folds.known import load_known
from sinkprop.experiment.folds.layout import data_set_name, find_data_sets
from sinkprop.experiment.methods import METHODS, Method, parse_methods
from sinkprop.experiment.published import PublishedRow, published_rows
from sinkprop.experiment.results import Comparison, PairedTest, Result
from sinkprop.experiment.run import DEFAULT_METHODS, DEFAULT_METRICS, MethodError, compare

__all__ = [
    "DEFAULT_METHODS",
    "DEFAULT_METRICS",
    "METHODS",
    "Comparison",
    "DataSet",
    "FoldFiles",
    "Method",
    "MethodError",
    "PairedTest",
    "Parts",
    "PublishedRow",
    "Result",
    "compare",
    "data_set_name",
    "find_data_sets",
    "load_known",
    "parse_methods",
    "published_rows",
]
