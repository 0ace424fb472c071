"""Linear rankers, trained by the paper's recipe: L-BFGS on the expected gain at decreasing smoothing."""
