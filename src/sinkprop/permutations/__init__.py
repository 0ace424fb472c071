"""Random permutations given by a matrix: permanents, marginals, online learning, and beliefs about ranks."""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.permutations.accept_reject import sample_matchings
    from sinkprop.permutations.assignment import best_ranking
    from sinkprop.permutations.beliefs import BeliefMatrix
    from sinkprop.permutations.conditions import condition
    from sinkprop.permutations.learner import PermutationLearner
    from sinkprop.permutations.marginals import MatchingMarginals, matching_marginals
    from sinkprop.permutations.online import OnlineLearner
    from sinkprop.permutations.permanents import Permanent, permanent
    from sinkprop.permutations.perturbed_leader import PerturbedLeader
    from sinkprop.permutations.playing import LearningRecord, play

__all__ = [
    "BeliefMatrix",
    "LearningRecord",
    "MatchingMarginals",
    "OnlineLearner",
    "Permanent",
    "PermutationLearner",
    "PerturbedLeader",
    "best_ranking",
    "condition",
    "matching_marginals",
    "permanent",
    "play",
    "sample_matchings",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BeliefMatrix": "sinkprop.permutations.beliefs",
        "LearningRecord": "sinkprop.permutations.playing",
        "MatchingMarginals": "sinkprop.permutations.marginals",
        "OnlineLearner": "sinkprop.permutations.online",
        "Permanent": "sinkprop.permutations.permanents",
        "PermutationLearner": "sinkprop.permutations.learner",
        "PerturbedLeader": "sinkprop.permutations.perturbed_leader",
        "best_ranking": "sinkprop.permutations.assignment",
        "condition": "sinkprop.permutations.conditions",
        "matching_marginals": "sinkprop.permutations.marginals",
        "permanent": "sinkprop.permutations.permanents",
        "play": "sinkprop.permutations.playing",
        "sample_matchings": "sinkprop.permutations.accept_reject",
    },
)
