"""Permutations: learned online from losses, and beliefs about them that observations update."""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.permutations.assignment import best_ranking
    from sinkprop.permutations.beliefs import BeliefMatrix
    from sinkprop.permutations.conditions import condition
    from sinkprop.permutations.learner import PermutationLearner
    from sinkprop.permutations.online import OnlineLearner
    from sinkprop.permutations.perturbed_leader import PerturbedLeader
    from sinkprop.permutations.playing import LearningRecord, play

__all__ = [
    "BeliefMatrix",
    "LearningRecord",
    "OnlineLearner",
    "PermutationLearner",
    "PerturbedLeader",
    "best_ranking",
    "condition",
    "play",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "BeliefMatrix": "sinkprop.permutations.beliefs",
        "LearningRecord": "sinkprop.permutations.playing",
        "OnlineLearner": "sinkprop.permutations.online",
        "PermutationLearner": "sinkprop.permutations.learner",
        "PerturbedLeader": "sinkprop.permutations.perturbed_leader",
        "best_ranking": "sinkprop.permutations.assignment",
        "condition": "sinkprop.permutations.conditions",
        "play": "sinkprop.permutations.playing",
    },
)
