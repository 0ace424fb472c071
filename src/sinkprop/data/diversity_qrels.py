"""Reader of TREC diversity qrels: labels of documents for each intent of a topic."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import IO, Any

import numpy as np
from numpy.typing import ArrayLike

from sinkprop.common.compressed import Source, StrPath, read_source
from sinkprop.common.types import Floats
from sinkprop.data.checks import unmasked
from sinkprop.data.letor_errors import shown_line

__all__ = ["DiversityQrels", "load_diversity_qrels"]


_LARGEST = 2**53  # largest label


@dataclass(frozen=True, eq=False, repr=False)
class DiversityQrels:
    r"""Labels of documents for the intents of topics, read by `load_diversity_qrels`.

    Parameters
    ----------
    topics : tuple of str
        Topics, in the order of the file.
    intents : tuple of str
        Intents of all topics, in ascending order: as numbers if all are integers, else as text. An intent
        that a topic does not have is a column of zeros for its documents.
    documents : tuple of (str, str)
        Topic and document id of each labeled document, in the order of the file.
    values : array of shape (R, I)
        Labels of the R documents for the I intents, at least 0; 0 where the file has none.

    Examples
    --------
    >>> import io
    >>> qrels = load_diversity_qrels(io.StringIO("201 1 a 1\n201 2 b 1\n202 1 a 0\n"))
    >>> qrels
    DiversityQrels(2 topics, 2 intents, 3 labeled documents)
    >>> qrels.labels([201, 201, 202], ["b", "c", "a"])
    array([[0., 1.],
           [0., 0.],
           [0., 0.]])
    """

    topics: tuple[str, ...]
    intents: tuple[str, ...]
    documents: tuple[tuple[str, str], ...]
    values: Floats

    @property
    def n_topics(self) -> int:
        """Number of topics."""
        return len(self.topics)

    @property
    def n_intents(self) -> int:
        """Number of intents I of all topics, the number of columns of `labels`."""
        return len(self.intents)

    @cached_property
    def _places(self) -> dict[tuple[str, str], int]:
        return {document: place for place, document in enumerate(self.documents)}

    def labels(
        self, qid: ArrayLike | Sequence[Hashable], docid: ArrayLike | Sequence[Hashable] | None
    ) -> Floats:
        """Labels of rows that are given by query id and document id.

        Parameters
        ----------
        qid : array of shape (N,)
            Topic of each row, int or str; 201 and "201" are the same topic.
        docid : array of shape (N,)
            Document id of each row, such as `Queries.docid`.

        Returns
        -------
        array of shape (N, I)
            One column per intent of `intents`, for `evaluate`; 0 for a document that is not in the file.

        Raises
        ------
        ValueError
            If the arguments do not have one id per row, or if no row has a topic of the file.
        """
        asked, names = _ids("qid", qid), _ids("docid", docid)
        if len(asked) != len(names):
            raise ValueError(
                f"docid must have one document id per row of qid: {len(asked)} rows, but {len(names)} ids."
            )
        if asked and not set(self.topics).intersection(asked):
            raise ValueError(
                f"qid must hold topics of the qrels, such as {self.topics[0]!r}; got none of them, but "
                f"{asked[0]!r}. Convert the query ids to the form of the qrels."
            )
        places = np.array([self._places.get(pair, -1) for pair in zip(asked, names, strict=True)], np.int64)
        labels = np.zeros((len(asked), self.n_intents))
        labels[places >= 0] = self.values[places[places >= 0]]
        return labels

    def __repr__(self) -> str:
        counts = (
            (self.n_topics, "topic"),
            (self.n_intents, "intent"),
            (len(self.documents), "labeled document"),
        )
        return f"DiversityQrels({', '.join(f'{n} {word}' + 's' * (n != 1) for n, word in counts)})"


def load_diversity_qrels(path: StrPath | IO[bytes] | IO[str]) -> DiversityQrels:
    """Read diversity qrels, with one line `topic intent document label` per label, as in TREC's Web tracks.

    Parameters
    ----------
    path : path or open file
        The file, plain or compressed by gzip, xz or bzip2. The fields of a line are separated by spaces or
        tabs.

    Returns
    -------
    DiversityQrels
        The topics, the intents and the labels.

    Raises
    ------
    ValueError
        If the file is empty or malformed; the message shows the first faulty line.

    Notes
    -----
    A label is an integer. Negative labels, which some tracks use for spam, become 0. A line may be repeated,
    but not with a different label.
    """
    source = read_source(path)
    found: dict[tuple[str, str, str], tuple[int, int]] = {}  # {(topic, intent, document): (label, line)}
    text = source.data.tobytes().removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(text.split(b"\n"), 1):
        if words := line.split():
            topic, intent, document, label = _fields(source, number, line, words)
            key = (topic, intent, document)
            before, first = found.setdefault(key, (label, number))
            if before != label:
                raise ValueError(
                    f"{source.name}, line {number}: the label {label} of topic {topic}, intent {intent}, "
                    f"document {document} differs from the label {before} on line {first}. Remove one of the "
                    "lines."
                )
    if not found:
        raise ValueError(
            f"{source.name}: the file holds no labels; expected lines 'topic intent document label'."
        )
    return _assembled({key: label for key, (label, _) in found.items()})


def _fields(source: Source, number: int, line: bytes, words: list[bytes]) -> tuple[str, str, str, int]:
    """Return the topic, intent, document and label of a line; raise a ValueError if it is malformed."""
    if len(words) != 4:
        raise ValueError(
            f"{source.name}, line {number}: expected four fields, 'topic intent document label'; got "
            f"{len(words)}. The line: {shown_line(line, 0)}."
        )
    if not re.fullmatch(rb"[+-]?[0-9]{1,18}", words[3]) or int(words[3]) > _LARGEST:
        raise ValueError(
            f"{source.name}, line {number}: expected a label that is an integer, not above 2^53; got "
            f"{shown_line(words[3], 0)}. The line: {shown_line(line, 0)}."
        )
    topic, intent, document = (word.decode("utf-8", "surrogateescape") for word in words[:3])
    return topic, intent, document, int(words[3])


def _assembled(labels: dict[tuple[str, str, str], int]) -> DiversityQrels:
    names = {intent for _, intent, _ in labels}
    numeric = all(re.fullmatch(r"[+-]?[0-9]{1,18}", name, re.ASCII) for name in names)
    intents = sorted(names, key=lambda name: (int(name) if numeric else 0, name))
    columns = {intent: column for column, intent in enumerate(intents)}
    places: dict[tuple[str, str], int] = {}
    rows = [places.setdefault((topic, document), len(places)) for topic, _, document in labels]
    values = np.zeros((len(places), len(intents)))
    values[rows, [columns[intent] for _, intent, _ in labels]] = np.maximum(list(labels.values()), 0)
    values.setflags(write=False)
    topics = dict.fromkeys(topic for topic, _ in places)
    return DiversityQrels(tuple(topics), tuple(intents), tuple(places), values)


def _ids(name: str, ids: Any) -> list[str]:
    """Return ids as texts; raise a ValueError if they are not one id per row."""
    array = np.asarray(unmasked(name, ids))
    if array.ndim != 1:
        got = "None" if ids is None else str(array.shape)
        raise ValueError(f"{name} must have one id per row, (N,); got {got}.")
    if array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            whole = array.astype(np.int64)
        if not (whole == array).all():
            row = int(np.argmin(whole == array))
            raise ValueError(f"{name} must hold integers or texts; row {row} holds {array[row]}.")
        array = whole
    return [one.decode() if isinstance(one, bytes) else str(one) for one in array.tolist()]
