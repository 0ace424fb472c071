"""Linear rankers: the paper's recipe, climbing the expected gain by L-BFGS at ever less smoothing."""
