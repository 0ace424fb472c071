"""AutoRanker: linear rankers, trees and networks, tried within a time budget and combined."""

from __future__ import annotations

from sinkprop.auto.ranker import AutoRanker
from sinkprop.auto.record import AutoFit, MemberRecord

__all__ = ["AutoFit", "AutoRanker", "MemberRecord"]
