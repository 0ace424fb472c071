"""Losses and differentiable layers in torch; they know nothing of `NeuralRanker`."""
