"""Queries from files, frames and arrays: what a query is, and how rows become queries."""

from sinkprop.data.queries import Fold, Groups, Queries, group_rows

__all__ = ["Fold", "Groups", "Queries", "group_rows"]
