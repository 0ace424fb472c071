"""Drift: a model's metrics, scores, probabilities and features on new queries, beside those of a reference.

`reference` describes a model on labeled queries, usually when it was made. `compare` tests, query by query,
which of its numbers have changed on newer queries by more than chance.
"""

from sinkprop.drift.comparison import Change, Drift, compare
from sinkprop.drift.reference import Reference, reference

__all__ = ["Change", "Drift", "Reference", "compare", "reference"]
