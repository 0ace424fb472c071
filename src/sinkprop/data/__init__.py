"""Queries from files, frames and arrays: what a query is, how rows become queries; nothing is scored."""

from sinkprop.data.queries import Fold, Groups, Queries, group_rows

__all__ = ["Fold", "Groups", "Queries", "group_rows"]
