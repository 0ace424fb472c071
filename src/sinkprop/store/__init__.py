"""Stored sets: queries in a folder on disk, possibly larger than memory, which every trainer accepts."""

from sinkprop.store.convert import convert, save_queries
from sinkprop.store.format import StoreError, is_stored
from sinkprop.store.stored import StoredQueries, open_queries

__all__ = ["StoreError", "StoredQueries", "convert", "is_stored", "open_queries", "save_queries"]
