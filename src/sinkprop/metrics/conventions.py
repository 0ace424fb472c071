"""Conventions: the choices that a metric's name leaves open, and the choices of other programs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Literal

from sinkprop.common.arguments import one_of
from sinkprop.common.text_forms import as_number, digits
from sinkprop.metrics.ranked_labels import Ties

__all__ = ["CONVENTIONS", "Convention", "as_convention"]

Discount = Literal["letor", "log2"]
LabelGain = Literal["exponential", "linear"]
Empty = Literal[0, 1, "skip"]


@dataclass(frozen=True, kw_only=True)
class Convention:
    """The choices that the name of a metric leaves open.

    `sinkprop.metrics.CONVENTIONS` holds the conventions with names. Make others with `dataclasses.replace`,
    or with the options of `evaluate`.

    Parameters
    ----------
    name : str
        Name of the convention.
    gain : {"exponential", "linear"}, default "exponential"
        Gain of a label r: 2^r - 1 or r. Alpha-nDCG and ERR-IA have their own gain and discount.
    discount : {"letor", "log2"}, default "log2"
        Discount of a rank. "letor" is 1 at ranks 1 and 2 and 1/log2(rank) after; "log2" is 1/log2(rank + 1).
    short_ndcg : {"zero", "present"}, default "present"
        NDCG@k and DCG@k of a query with fewer than k documents: 0, or the value of the documents present.
    short_p : {"zero", "k", "documents"}, default "k"
        P@k of a query with fewer than k documents: 0, or its number of relevant documents divided by k or by
        its number of documents.
    map_at : {"relevant", "reachable"}, default "relevant"
        Divisor of AP@k: the number of relevant documents, or that number but at most k.
    empty : {0, 1, "skip"}, default 0
        Value of a query without a relevant document; "skip" leaves it out of the mean. The value 1 applies to
        NDCG, alpha-nDCG, MAP, MRR, recall and hit only; with it, P, DCG, ERR, ERR-IA and RBP of such a query
        are 0.
    ties : {"file", "average", "worst", "best"}, default "file"
        Order of documents with equal scores: the order of the rows, the exact average over all orders, the
        worst or the best order. Alpha-nDCG and ERR-IA take "file" only.
    threshold : float, default 1.0
        Least label of a relevant document, for the metrics that only distinguish relevant and irrelevant.
    max_grade : float, optional
        Highest grade of ERR. The default is the largest label of the data, which may differ between files:
        set it if you compare values of ERR.

    Examples
    --------
    >>> from sinkprop.metrics import CONVENTIONS
    >>> CONVENTIONS["mslr"].threshold
    2.0
    """

    name: str
    gain: LabelGain = "exponential"
    discount: Discount = "log2"
    short_ndcg: Literal["zero", "present"] = "present"
    short_p: Literal["zero", "k", "documents"] = "k"
    map_at: Literal["relevant", "reachable"] = "relevant"
    empty: Empty = 0
    ties: Ties = "file"
    threshold: float = 1.0
    max_grade: float | None = None

    def __post_init__(self) -> None:
        put = object.__setattr__
        for name, choices in CHOICES.items():
            one_of(name, getattr(self, name), choices)
        if isinstance(self.empty, bool) or self.empty not in (0, 1, "skip"):
            raise ValueError(f"empty must be 0, 1 or 'skip'; got {self.empty!r}.")
        put(self, "empty", self.empty if isinstance(self.empty, str) else int(self.empty))
        put(self, "threshold", as_number("threshold", self.threshold))
        if self.max_grade is not None:
            put(self, "max_grade", as_number("max_grade", self.max_grade))

    def describe(self) -> str:
        """Describe the convention in one sentence.

        Returns
        -------
        str
            The name, and one clause per choice.
        """
        return f"{self.title()}: {'; '.join(self.clauses())}."

    def title(self) -> str:
        """Name of the convention, with the options that differ from the entry of this name in `CONVENTIONS`.

        Returns
        -------
        str
            The title, such as "letor", or "letor, except for ties" if only `ties` differs.
        """
        known = CONVENTIONS.get(self.name)
        if known is None:
            return self.name
        stated = [f.name for f in fields(self) if f.name != "max_grade"]
        changed = [name for name in stated if getattr(self, name) != getattr(known, name)]
        return self.name + (f", except for {listed(changed)}" if changed else "")

    def clauses(self, empty_note: str = "") -> list[str]:
        """Describe each choice of the convention.

        Parameters
        ----------
        empty_note : str, default ""
            Text to append to the clause about queries without a relevant document.

        Returns
        -------
        list of str
            One clause per choice.
        """
        clauses = [f"{_GAINS[self.gain]}, {_DISCOUNTS[self.discount]}"]
        if self.short_ndcg == self.short_p == "zero":
            clauses.append("a query with fewer than k documents adds 0 to NDCG@k, DCG@k and P@k")
        else:
            short = f"{_SHORT_NDCG[self.short_ndcg]}, {_SHORT_P[self.short_p]}"
            clauses.append(f"a query with fewer than k documents {short}")
        if self.map_at == "reachable":
            clauses.append("AP@k is divided by the number of relevant documents, at most k")
        empty = "is left out" if self.empty == "skip" else f"counts {self.empty}"
        clauses.append(f"a query without a relevant document {empty}{empty_note}")
        clauses.append(_TIES[self.ties])
        clauses.append(f"labels >= {digits(self.threshold)} are relevant")
        return clauses


_GAINS = {"exponential": "gain 2^r - 1", "linear": "gain r"}
_DISCOUNTS = {
    "letor": "discount 1 at ranks 1 and 2 and 1/log2(rank) after",
    "log2": "discount 1/log2(rank + 1)",
}
_SHORT_NDCG = {"zero": "adds 0 to NDCG@k and DCG@k", "present": "is scored on those it has"}
_SHORT_P = {"zero": "and adds 0 to P@k", "k": "P@k divided by k", "documents": "P@k divided by their number"}
_TIES = {
    "file": "tied scores rank in file order",
    "average": "tied scores are averaged over all orders",
    "worst": "tied scores rank in the worst order",
    "best": "tied scores rank in the best order",
}
CHOICES: dict[str, tuple[str, ...]] = {
    "gain": tuple(_GAINS),
    "discount": tuple(_DISCOUNTS),
    "short_ndcg": tuple(_SHORT_NDCG),
    "short_p": tuple(_SHORT_P),
    "map_at": ("relevant", "reachable"),
    "ties": tuple(_TIES),
}

CONVENTIONS: Mapping[str, Convention] = MappingProxyType(
    {
        convention.name: convention
        for convention in (
            # letor, letor4 and mslr follow Microsoft's programs Eval-Score-3.0.pl, Eval-Score-4.0.pl and
            # eval-score-mslr.pl
            Convention(name="letor", discount="letor", short_ndcg="zero", short_p="zero"),
            Convention(name="letor4", discount="letor", short_ndcg="zero"),
            Convention(name="mslr", discount="letor", short_ndcg="zero", threshold=2),
            Convention(name="standard"),
            Convention(name="lightgbm", map_at="reachable", empty=1),
            Convention(name="xgboost", map_at="reachable", empty=1, short_p="documents"),
            Convention(name="sklearn", gain="linear", ties="average"),
            Convention(name="trec", gain="linear"),
        )
    }
)


def as_convention(value: str | Convention) -> Convention:
    """Look up a convention by its name in `CONVENTIONS`; return a `Convention` unchanged.

    Parameters
    ----------
    value : str or Convention
        A convention, or its name in upper or lower case.

    Returns
    -------
    Convention
        The convention.

    Raises
    ------
    ValueError
        If there is no convention of this name.

    Examples
    --------
    >>> as_convention("letor").discount
    'letor'
    """
    if isinstance(value, Convention):
        return value
    if isinstance(value, str) and value.lower() in CONVENTIONS:
        return CONVENTIONS[value.lower()]
    raise ValueError(f"convention must be a Convention, or one of {listed(CONVENTIONS)}; got {value!r}.")


def listed(names: Iterable[object]) -> str:
    """Join names with commas, and the last one with "and"."""
    texts = [str(name) for name in names]
    return " and ".join([", ".join(texts[:-1]), texts[-1]] if len(texts) > 1 else texts)
