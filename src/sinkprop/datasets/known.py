"""Published numbers of queries, documents and features of well-known data sets, to check what was read."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any, Literal, get_args

from sinkprop.common.arguments import one_of

__all__ = ["KNOWN_SETS", "Check", "Counts", "KnownSet", "check_counts", "known_set"]

Check = Literal["error", "warn", "none"]


@dataclass(frozen=True)
class Counts:
    """Number of queries and documents of a data set or of one of its files.

    Parameters
    ----------
    queries : int
        Number of queries.
    documents : int, optional
        Number of documents; None if it is not published.
    """

    queries: int
    documents: int | None = None


@dataclass(frozen=True)
class KnownSet:
    """Published description of a data set.

    Parameters
    ----------
    name : str
        Name of the data set, as in `KNOWN_SETS`.
    total : Counts
        Counts of the training, validation and test files of one fold together. A fold has every query of the
        data set once.
    features : int
        Number of features.
    parts : mapping of str to Counts, optional
        Counts of the files "train", "vali" and "test", if the data set has a single split.
    n_folds : int, default 5
        Number of folds; 1 for a single split.
    sparse : bool, default False
        Whether files leave out features that are 0, so that the largest feature id of a file can be smaller
        than the number of features.

    Examples
    --------
    >>> from sinkprop.datasets import KNOWN_SETS
    >>> KNOWN_SETS["mslr-web10k"].total
    Counts(queries=10000, documents=1200192)
    """

    name: str
    total: Counts
    features: int
    parts: Mapping[str, Counts] = field(default_factory=dict)
    n_folds: int = 5
    sparse: bool = False


def _split(
    name: str, features: int, *, sparse: bool = False, documents: int | None = None, **parts: Counts
) -> KnownSet:
    """Describe a data set with a single split; `documents` is the total, if it is not known by part."""
    if documents is None:
        documents = sum(part.documents or 0 for part in parts.values())
    total = Counts(sum(part.queries for part in parts.values()), documents)
    return KnownSet(name, total, features, parts, n_folds=1, sparse=sparse)


# Numbers of documents are None where no source could be confirmed.
KNOWN_SETS: Mapping[str, KnownSet] = MappingProxyType(
    {
        known.name: known
        for known in (
            # LETOR 3.0: T. Qin, T.-Y. Liu, J. Xu and H. Li, "LETOR: A benchmark collection for research on
            # learning to rank for information retrieval", Information Retrieval 13 (2010); OHSUMED's
            # documents are counted in its files.
            KnownSet("ohsumed", Counts(106, 16_140), 45),
            KnownSet("td2003", Counts(50), 64),
            KnownSet("td2004", Counts(75), 64),
            KnownSet("hp2003", Counts(150), 64),
            KnownSet("hp2004", Counts(75), 64),
            KnownSet("np2003", Counts(150), 64),
            KnownSet("np2004", Counts(75), 64),
            # LETOR 4.0: T. Qin and T.-Y. Liu, "Introducing LETOR 4.0 datasets", arXiv:1306.2597 (2013);
            # documents of MQ2007-agg are counted in its files, and it has the documents of MQ2007.
            KnownSet("mq2007", Counts(1_692, 69_623), 46),
            KnownSet("mq2008", Counts(784, 15_211), 46),
            KnownSet("mq2007-agg", Counts(1_692, 69_623), 21),
            KnownSet("mq2008-agg", Counts(784), 25),
            # MSLR: https://www.microsoft.com/en-us/research/project/mslr/ has the features and the rounded
            # number of queries. T.-Y. Liu, "Learning to rank for information retrieval" (2011), section 12.2,
            # has 31,531 queries, and numbers of documents that are one higher than those of the files.
            KnownSet("mslr-web10k", Counts(10_000, 1_200_192), 136),
            KnownSet("mslr-web30k", Counts(31_531, 3_771_125), 136),
            # Yahoo: O. Chapelle and Y. Chang, "Yahoo! Learning to Rank Challenge overview", JMLR W&CP 14
            # (2011), table 1; 700 features in both sets together.
            _split(
                "yahoo-set1",
                700,
                sparse=True,
                train=Counts(19_944, 473_134),
                vali=Counts(2_994, 71_083),
                test=Counts(6_983, 165_660),
            ),
            _split(
                "yahoo-set2",
                700,
                sparse=True,
                train=Counts(1_266, 34_815),
                vali=Counts(1_266, 34_881),
                test=Counts(3_798, 103_174),
            ),
            # Istella: the README files of Istella LETOR and Istella-S LETOR (33,018 queries, 220 features,
            # 3,408,630 documents of Istella-S), and https://www.tensorflow.org/datasets/catalog/istella
            # (10,454,629 documents of Istella, queries by part).
            _split("istella", 220, documents=10_454_629, train=Counts(23_219), test=Counts(9_799)),
            _split(
                "istella-s",
                220,
                train=Counts(19_245, 2_043_304),
                vali=Counts(7_211, 684_076),
                test=Counts(6_562, 681_250),
            ),
        )
    }
)
_OTHER_NAMES = {"istella-letor": "istella", "istella-s-letor": "istella-s"}
_YAHOO = re.compile(r"(?:.*[/_-])?(set[12])")


def known_set(name: str) -> KnownSet:
    """Look up the published counts of a data set.

    Parameters
    ----------
    name : str
        Name in `KNOWN_SETS`, in upper or lower case, or a name that `find_data_sets` gives to the data set,
        such as "istella-s-letor", "ltrc_yahoo/set1" or "OHSUMED/QueryLevelNorm".

    Returns
    -------
    KnownSet
        The counts.

    Raises
    ------
    ValueError
        If there are no counts for this name.

    Examples
    --------
    >>> known_set("MQ2007").features
    46
    >>> known_set("ltrc_yahoo/set1").parts["vali"]
    Counts(queries=2994, documents=71083)
    """
    text = name.lower().strip()
    yahoo = _YAHOO.fullmatch(text)
    for own in (text, text.partition("/")[0], f"yahoo-{yahoo[1]}" if yahoo else ""):
        found = KNOWN_SETS.get(_OTHER_NAMES.get(own, own))
        if found is not None:
            return found
    close = get_close_matches(text, KNOWN_SETS, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise ValueError(
        f"there are no published counts for {name!r}.{hint} The data sets with counts are "
        f"{', '.join(KNOWN_SETS)}."
    )


def check_counts(known: KnownSet, parts: Mapping[str, Any], where: str, *, check: Check = "error") -> None:
    """Compare the queries of one fold with the published counts.

    Parameters
    ----------
    known : KnownSet
        The published counts.
    parts : mapping of str to Queries or StoredQueries
        Queries of the files "train", "vali" and "test"; a data set without validation queries has no "vali".
    where : str
        Name of the fold or folder, for the message.
    check : {"error", "warn", "none"}, default "error"
        What to do if the counts differ: raise a ValueError, warn, or nothing.

    Raises
    ------
    ValueError
        If a count differs; the message has both numbers.
    """
    one_of("check", check, get_args(Check))
    if check == "none":
        return
    wrong = list(_differences(known, parts))
    if not wrong:
        return
    message = f"{where} is not {known.name} as published: {'; '.join(wrong)}."
    if check == "warn":
        warnings.warn(message, UserWarning, stacklevel=3)
        return
    raise ValueError(
        f"{message} Unpack it again; a part of the data set needs check='warn', or no --check-counts."
    )


def _differences(known: KnownSet, parts: Mapping[str, Any]) -> Iterator[str]:
    for part, expected in known.parts.items():
        if part not in parts:
            yield f"there is no file with the {expected.queries:,} queries of {part}"
        else:
            yield from _compared(f"{part} has", [parts[part]], expected.queries, expected.documents)
    # Wrong counts of a part are reported only once, not again as a wrong total.
    in_parts = bool(known.parts), any(part.documents is not None for part in known.parts.values())
    total = (None if in_parts[0] else known.total.queries), (None if in_parts[1] else known.total.documents)
    yield from _compared(f"{', '.join(parts)} together have", list(parts.values()), *total)
    widths = {queries.n_features for queries in parts.values()}
    for width in sorted(widths - {known.features}):
        yield f"there are {width:,} features instead of {known.features:,}"


def _compared(what: str, files: list[Any], queries: int | None, documents: int | None) -> Iterator[str]:
    """Compare sums over files with the published numbers, unless these are None."""
    found = sum(file.n_queries for file in files), sum(map(len, files))
    for n, published, word in ((found[0], queries, "queries"), (found[1], documents, "documents")):
        if published is not None and n != published:
            yield f"{what} {n:,} {word} instead of {published:,}"
