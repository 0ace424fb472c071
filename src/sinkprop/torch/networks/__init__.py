"""The networks of `NeuralRanker`: settings as values, and the modules that they create."""
