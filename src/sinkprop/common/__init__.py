"""Checks, files, text and numerics that know nothing of queries and would make sense in another library."""
