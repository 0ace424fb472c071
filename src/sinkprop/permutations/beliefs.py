"""Belief matrices: probabilities of which object has which rank, updated by observations and exchanges."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sinkprop.common.arguments import number, whole
from sinkprop.common.types import Floats
from sinkprop.permutations.slack_scaling import scaled_with_slack, with_row
from sinkprop.policies.doubly_stochastic import as_numbers, rank_probabilities, repaired

__all__ = ["BeliefMatrix"]

_SURE = 1e-9  # distance from 1 at which an entry is certain
_FARTHEST = 1e-6  # of a sum from 1


class BeliefMatrix:
    """Belief about which document has which rank: a matrix whose rows and columns sum to 1.

    Balakrishnan, Hwang and Tomlin (2004) keep such a matrix to track identities: the documents are tracks of
    moving objects, and the ranks their identities. Every method returns a new belief, and none changes it.

    - `observe` and `weigh` use Bayes' rule for the row or column of what was seen, and scale all other rows
      and columns by Sinkhorn normalization until the sums are right. This is the closest matrix in relative
      entropy that has these sums. The row or column is exact if the belief was; the others are approximate,
      because the matrix does not say how the ranks of different documents depend on each other.
    - `swap` and `mix` are exact: an exchange changes probabilities linearly.

    With slack, the matrix need not be square: `absent` is the probability that a document has none of the
    ranks, and `vacant` the probability that a rank belongs to none of the documents. Each row sums to 1 with
    `absent`, and each column with `vacant`. The sums of `absent` and of `vacant`, which are the expected
    numbers of such documents and ranks, are not normalized, and normalization does not multiply slack entries
    by a factor of their own.

    Parameters
    ----------
    matrix : array of shape (n, m)
        Probability of each document (row) at each rank (column). Without slack it must be square; sums that
        are only about 1 are then scaled to 1, as in `sample_rankings`.
    absent : array of shape (n,), optional
        Probability that a document has none of the ranks. By default, what the sum of the row lacks if
        `vacant` is given, else 0.
    vacant : array of shape (m,), optional
        Probability that a rank belongs to none of the documents. By default, what the sum of the column lacks
        if `absent` is given, else 0.

    Attributes
    ----------
    matrix : array of shape (n, m)
        Probabilities; read-only, like the others.
    absent : array of shape (n,)
        Slack of the rows.
    vacant : array of shape (m,)
        Slack of the columns.

    Examples
    --------
    >>> belief = BeliefMatrix.uniform(3).observe(2, rank=3)
    >>> belief.matrix
    array([[0.5, 0.5, 0. ],
           [0.5, 0.5, 0. ],
           [0. , 0. , 1. ]])
    >>> belief.swap(1, 2, 0.1).matrix
    array([[0.5 , 0.5 , 0.  ],
           [0.45, 0.45, 0.1 ],
           [0.05, 0.05, 0.9 ]])
    """

    matrix: Floats
    absent: Floats
    vacant: Floats

    def __init__(
        self,
        matrix: npt.ArrayLike,
        absent: npt.ArrayLike | None = None,
        vacant: npt.ArrayLike | None = None,
    ) -> None:
        if absent is None and vacant is None:
            P = as_numbers(matrix, "matrix")
            if P.ndim != 2 or P.shape[0] != P.shape[1] or not P.size:
                raise ValueError(
                    f"matrix must be square without slack; got shape {P.shape}. Give absent or vacant for "
                    "documents without a rank and ranks without a document."
                )
            P = repaired(rank_probabilities(P, "matrix"))[0]
            self._set(P.copy(), np.zeros(len(P)), np.zeros(len(P)))
            return
        P = _nonnegative(matrix, "matrix", None)
        n, m = P.shape
        rows, columns = P.sum(axis=1), P.sum(axis=0)
        r = np.maximum(1 - rows, 0) if absent is None else _nonnegative(absent, "absent", (n,))
        c = np.maximum(1 - columns, 0) if vacant is None else _nonnegative(vacant, "vacant", (m,))
        for noun, slack, sums in (("row", "absent", rows + r), ("column", "vacant", columns + c)):
            worst = int(np.argmax(np.abs(sums - 1), axis=0)) if sums.size else 0
            if sums.size and abs(sums[worst] - 1) > _FARTHEST:
                raise ValueError(
                    f"matrix must have {noun} sums of 1 together with {slack}; {noun} {worst} sums to "
                    f"{sums[worst]:.6g}."
                )
        self._set(P.copy(), r.copy(), c.copy())

    def _set(self, *arrays: Floats) -> None:
        for name, array in zip(("matrix", "absent", "vacant"), arrays, strict=True):
            array.setflags(write=False)
            setattr(self, name, array)

    @classmethod
    def _of(cls, matrix: Floats, absent: Floats, vacant: Floats) -> BeliefMatrix:
        made = cls.__new__(cls)
        made._set(matrix, absent, vacant)
        return made

    @classmethod
    def uniform(cls, n: int) -> BeliefMatrix:
        """Belief in which every ranking of n documents is equally probable.

        Parameters
        ----------
        n : int
            Number of documents and of ranks.

        Returns
        -------
        BeliefMatrix
            Equal probabilities, without slack.
        """
        n = whole("n", n, 1)
        return cls(np.full((n, n), 1 / n))

    def __repr__(self) -> str:
        n, m = self.matrix.shape
        return f"BeliefMatrix({n} documents, {m} ranks, {self.absent.sum():.4g} documents absent)"

    def observe(self, document: int, rank: int) -> BeliefMatrix:
        """Belief after a document was seen at a rank, with certainty.

        Parameters
        ----------
        document : int
            Index of the document, from 0.
        rank : int
            Its rank, from 1.

        Returns
        -------
        BeliefMatrix
            Belief in which this entry is 1.
        """
        j, k = self._document(document), self._rank(rank)
        if self.matrix[j, k] <= 0:
            raise ValueError(self._impossible(j, k))
        matrix, absent, vacant = self.matrix.copy(), self.absent.copy(), self.vacant.copy()
        kept = matrix[j, k]
        matrix[j], matrix[:, k], absent[j], vacant[k] = 0.0, 0.0, 0.0, 0.0
        matrix[j, k] = kept
        return self._checked(scaled_with_slack(matrix, absent, vacant), f"document {j} at rank {k + 1}")

    def _impossible(self, j: int, k: int) -> str:
        elsewhere, taken = np.argmax(self.matrix[j]), np.argmax(self.matrix[:, k])
        if self.matrix[j, elsewhere] >= 1 - _SURE:
            return (
                f"document {j} is at rank {elsewhere + 1} with certainty, so it cannot be observed at rank "
                f"{k + 1}. Use swap or mix if documents can have exchanged ranks since."
            )
        if self.matrix[taken, k] >= 1 - _SURE:
            return (
                f"rank {k + 1} is taken: document {taken} is there with certainty, so document {j} cannot be "
                "observed there. Use swap or mix if documents can have exchanged ranks since."
            )
        return f"document {j} has probability 0 at rank {k + 1}, so it cannot be observed there."

    def weigh(
        self,
        likelihood: npt.ArrayLike,
        *,
        document: int | None = None,
        rank: int | None = None,
        slack: float = 1.0,
    ) -> BeliefMatrix:
        """Belief after uncertain evidence, such as a noisy observation.

        With `document`, its row is multiplied by the likelihood and divided by its sum, which is Bayes' rule,
        and the other rows are scaled. With `rank`, the same is done for a column. A matrix multiplies all
        entries, and all rows and columns are scaled. This is Bayes' rule for the distribution over rankings
        s that is proportional to the product of the entries matrix[s(k), k]. The entries themselves then
        change less than the probabilities of that distribution.

        Parameters
        ----------
        likelihood : array of shape (m,), (n,) or (n, m)
            Probability of what was seen, up to a common factor: at each rank for one document, for each
            document at one rank, or for each entry.
        document : int, optional
            Document that the evidence is about, for a likelihood per rank.
        rank : int, optional
            Rank, from 1, that the evidence is about, for a likelihood per document.
        slack : float, default 1.0
            Likelihood if the document has none of the ranks, or if the rank belongs to none of the documents.
            It needs `document` or `rank`.

        Returns
        -------
        BeliefMatrix
            The belief with multiplied and normalized entries.
        """
        n, m = self.matrix.shape
        if document is not None and rank is not None:
            raise ValueError("give document or rank, or neither for a matrix of likelihoods; got both.")
        slack = number("slack", slack)
        matrix, absent, vacant = self.matrix, self.absent, self.vacant
        if document is not None:
            j = self._document(document)
            row = matrix[j] * _nonnegative(likelihood, "likelihood", (m,))
            found = with_row(matrix, absent, vacant, j, row, absent[j] * slack)
            what = f"the likelihood of document {j}"
        elif rank is not None:
            k = self._rank(rank)
            column = matrix[:, k] * _nonnegative(likelihood, "likelihood", (n,))
            turned = with_row(matrix.T, vacant, absent, k, column, vacant[k] * slack)
            found = None if turned is None else (turned[0].T.copy(), turned[2], turned[1])
            what = f"the likelihood of rank {k + 1}"
        else:
            if slack != 1:
                raise ValueError("slack is for the evidence about one document or one rank; give that too.")
            weighed = matrix * _nonnegative(likelihood, "likelihood", (n, m))
            found, what = scaled_with_slack(weighed, absent, vacant), "the likelihood"
        return self._checked(found, what)

    def swap(self, first: int, second: int, probability: float = 0.5) -> BeliefMatrix:
        """Belief after two documents have exchanged their ranks with some probability.

        Parameters
        ----------
        first : int
            Index of a document.
        second : int
            Index of another one.
        probability : float, default 0.5
            Probability of the exchange, independent of the ranks.

        Returns
        -------
        BeliefMatrix
            Belief with mixed rows.
        """
        i, j = self._document(first, "first"), self._document(second, "second")
        if i == j:
            raise ValueError(f"first and second must be two documents; got {i} twice.")
        p = number("probability", probability)
        if p > 1:
            raise ValueError(f"probability must be at most 1; got {probability!r}.")
        matrix, absent = self.matrix.copy(), self.absent.copy()
        matrix[[i, j]] = (1 - p) * matrix[[i, j]] + p * matrix[[j, i]]
        absent[[i, j]] = (1 - p) * absent[[i, j]] + p * absent[[j, i]]
        return self._of(matrix, absent, self.vacant.copy())

    def mix(self, mixing: npt.ArrayLike) -> BeliefMatrix:
        """Belief after documents have exchanged their ranks at random: mixing @ matrix.

        Parameters
        ----------
        mixing : array of shape (n, n)
            Doubly stochastic: mixing[i, j] is the probability that document i has now the rank that document
            j had.

        Returns
        -------
        BeliefMatrix
            Belief with mixed rows.
        """
        n = len(self.matrix)
        M = _nonnegative(mixing, "mixing", (n, n))
        for noun, sums in (("row", M.sum(axis=1)), ("column", M.sum(axis=0))):
            worst = int(np.argmax(np.abs(sums - 1)))
            if abs(sums[worst] - 1) > _FARTHEST:
                raise ValueError(
                    f"mixing must be doubly stochastic; {noun} {worst} sums to {sums[worst]:.6g}, not 1."
                )
        M, _ = repaired(M)
        return self._of(M @ self.matrix, M @ self.absent, self.vacant.copy())

    def remove_document(self, document: int) -> BeliefMatrix:
        """Belief after a document has vanished. Its rank is then vacant.

        Parameters
        ----------
        document : int
            Index of the document; later documents get the index before theirs.

        Returns
        -------
        BeliefMatrix
            Belief without the row, which is added to `vacant`.
        """
        j = self._document(document)
        return self._of(
            np.delete(self.matrix, j, axis=0), np.delete(self.absent, j), self.vacant + self.matrix[j]
        )

    def remove_rank(self, rank: int) -> BeliefMatrix:
        """Belief after a rank has vanished. The document that had it then has none.

        Parameters
        ----------
        rank : int
            The rank, from 1; later ranks become one less.

        Returns
        -------
        BeliefMatrix
            Belief without the column, which is added to `absent`.
        """
        k = self._rank(rank)
        return self._of(
            np.delete(self.matrix, k, axis=1), self.absent + self.matrix[:, k], np.delete(self.vacant, k)
        )

    def add_document(self, probability: float | None = None) -> BeliefMatrix:
        """Belief after a document has appeared, which has one of the vacant ranks or none.

        Parameters
        ----------
        probability : float, optional
            Probability that it has one of the vacant ranks, in proportion to `vacant`. By default as large as
            possible: the expected number of vacant ranks, and at most 1.

        Returns
        -------
        BeliefMatrix
            Belief with a row more, which is subtracted from `vacant`.
        """
        row, absent = _share(self.vacant, probability, "vacant ranks")
        return self._of(
            np.vstack([self.matrix, row]), np.append(self.absent, absent), np.maximum(self.vacant - row, 0)
        )

    def add_rank(self, probability: float | None = None) -> BeliefMatrix:
        """Belief after a rank has appeared, which belongs to one of the absent documents or to none.

        Parameters
        ----------
        probability : float, optional
            Probability that it belongs to a document without a rank, in proportion to `absent`. By default as
            large as possible: the expected number of these documents, and at most 1.

        Returns
        -------
        BeliefMatrix
            Belief with a column more, which is subtracted from `absent`.
        """
        column, vacant = _share(self.absent, probability, "absent documents")
        return self._of(
            np.column_stack([self.matrix, column]),
            np.maximum(self.absent - column, 0),
            np.append(self.vacant, vacant),
        )

    def _checked(self, found: tuple[Floats, Floats, Floats] | None, what: str) -> BeliefMatrix:
        if found is None:
            raise ValueError(
                f"{what} has probability 0: no assignment of documents to ranks is left, given the zeros of "
                "the belief."
            )
        return self._of(*found)

    def _document(self, document: int, name: str = "document") -> int:
        j, n = whole(name, document, 0), len(self.matrix)
        if j >= n:
            raise ValueError(f"{name} must be from 0 to {n - 1}; got {j}.")
        return j

    def _rank(self, rank: int) -> int:
        k, m = whole("rank", rank, 1), self.matrix.shape[1]
        if k > m:
            raise ValueError(f"rank must be from 1 to {m}; got {k}.")
        return k - 1


def _share(slack: Floats, probability: float | None, noun: str) -> tuple[Floats, float]:
    """Entries of something new that takes its share of the slack, and its own slack."""
    total = float(slack.sum())
    p = min(total, 1.0) if probability is None else number("probability", probability)
    if p > min(total, 1.0) + _SURE:
        raise ValueError(
            f"probability must be at most {min(total, 1.0):.4g}, because the expected number of {noun} is "
            f"{total:.4g}; got {p:.4g}."
        )
    entries: Floats = slack * (p / total) if total > 0 else np.zeros(len(slack))
    return entries, max(1.0 - p, 0.0)


def _nonnegative(values: npt.ArrayLike, name: str, shape: tuple[int, ...] | None) -> Floats:
    A = as_numbers(values, name)
    if (shape is not None and A.shape != shape) or (shape is None and A.ndim != 2):
        expected = f"shape {shape}" if shape is not None else "one row per document and one column per rank"
        raise ValueError(f"{name} must have {expected}; got shape {A.shape}.")
    valid = np.isfinite(A) & (A >= 0)
    if not valid.all():
        where = np.argwhere(~valid)[0].tolist()
        raise ValueError(
            f"{name} must have finite entries of at least 0; got {name}{where} = {A[tuple(where)]}."
        )
    return A
