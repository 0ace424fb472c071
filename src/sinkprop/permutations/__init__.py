"""Random permutations given by a matrix of weights: permanents, and the probabilities of the entries."""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.permutations.accept_reject import sample_matchings
    from sinkprop.permutations.marginals import MatchingMarginals, matching_marginals
    from sinkprop.permutations.permanents import Permanent, permanent

__all__ = [
    "MatchingMarginals",
    "Permanent",
    "matching_marginals",
    "permanent",
    "sample_matchings",
]

# Names are imported at first use.
_LAZY = {
    "MatchingMarginals": "sinkprop.permutations.marginals",
    "Permanent": "sinkprop.permutations.permanents",
    "matching_marginals": "sinkprop.permutations.marginals",
    "permanent": "sinkprop.permutations.permanents",
    "sample_matchings": "sinkprop.permutations.accept_reject",
}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
