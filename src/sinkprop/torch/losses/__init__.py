"""Losses and differentiable layers for PyTorch, independent of `NeuralRanker`."""
