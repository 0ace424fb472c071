"""Queries from files, frames and arrays: the types of queries and how rows are grouped into them."""

from sinkprop.data.queries import Fold, Groups, Queries, group_rows

__all__ = ["Fold", "Groups", "Queries", "group_rows"]
