"""sinkprop for rerankers: a listwise loss, an evaluator and a trainer for cross-encoders.

Needs sentence-transformers: pip install "sinkprop[rerank]".
"""

import importlib.util

# datasets and accelerate are needed by the trainers
if not all(map(importlib.util.find_spec, ("torch", "sentence_transformers", "datasets", "accelerate"))):
    raise ImportError('sinkprop.rerank needs sentence-transformers: pip install "sinkprop[rerank]".')

from sinkprop.rerank.evaluator import RerankingEvaluator, score_lists
from sinkprop.rerank.list_loss import SinkPropListLoss
from sinkprop.rerank.trainer import ListCollator, ListTrainer

__all__ = ["ListCollator", "ListTrainer", "RerankingEvaluator", "SinkPropListLoss", "score_lists"]
