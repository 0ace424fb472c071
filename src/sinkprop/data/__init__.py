"""Queries from files, frames and arrays: classes that hold queries, and the grouping of rows into queries."""

from sinkprop.data.queries import Fold, Groups, Queries, group_rows

__all__ = ["Fold", "Groups", "Queries", "group_rows"]
