"""Linear rankers, trained by L-BFGS on the expected gain, stage by stage."""
