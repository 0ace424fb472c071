"""The growth of boosted trees by the workers of a Dask cluster together."""
