"""Stochastic rankings: drawn from rank probabilities, or optimized under constraints on exposure."""
