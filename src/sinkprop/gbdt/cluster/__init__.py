"""Boosted trees grown by the workers of a Dask cluster together."""
