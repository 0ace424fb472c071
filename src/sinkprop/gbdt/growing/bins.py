"""LightGBM's data sets made of rows that are read in chunks, with one byte per value in memory.

LightGBM cuts each feature into bins, at bounds that it computes from a sample of the rows, and keeps only the
bin number of each value. Its own constructors take all rows at once. This module passes the rows as they are
read. It draws the same sample, so the bins and the trees are the same as for rows in memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sinkprop.common.types import Floats
from sinkprop.gbdt.boosters import lightgbm_module
from sinkprop.gbdt.growing.rows import StreamedRows, plain_rows

__all__ = ["Bins", "dataset", "predicted", "sample_of", "sample_rows"]


_MOST = 2**31 - 1  # largest number of rows of a Dataset; LightGBM counts them in 32 bits
_ZERO = 1e-35  # LightGBM treats numbers up to this absolute value as 0


def predicted(booster: Any, X: Any, **options: Any) -> Floats:
    """Scores (N,) that all trees of a booster give to the rows X."""
    options = {"raw_score": True, "num_iteration": -1, **options}
    if not isinstance(X, StreamedRows):
        scores: Floats = booster.predict(plain_rows(X), **options)
        return scores
    return np.concatenate([booster.predict(block, **options) for block in X.row_blocks()])


class Bins:
    """Bounds of the bins of all features, held by a LightGBM Dataset that has no rows yet.

    parameters   Parameters of LightGBM, which determine the bounds and are listed in the text of the model.
    categorical  Column numbers of the categorical features.
    """

    def __init__(self, parameters: dict[str, Any], categorical: Sequence[int] = ()) -> None:
        self.parameters = dict(parameters)
        if categorical:
            self.parameters["categorical_column"] = sorted(categorical)
        self._basic = lightgbm_module().basic
        self._handle = ctypes.c_void_p()

    @property
    def text(self) -> Any:
        """The parameters as the C string that LightGBM's functions take."""
        return self._basic._c_str(self._basic._param_dict_to_str(self.parameters))

    def find(self, sample: Floats, n_rows: int, n_all: int) -> Bins:
        """Compute the bounds from a sample of rows.

        sample  Features (D, S) of the sample: D features of S rows.
        n_rows  Number of rows that the Dataset will hold.
        n_all   Number of rows from which the sample was drawn.
        """
        call, lib = self._basic._safe_call, self._basic._LIB
        values, places = [], []
        numbers = np.arange(sample.shape[1], dtype=np.int32)
        for column in sample:
            kept = np.isnan(column)
            kept |= np.abs(column) > _ZERO
            values.append(np.ascontiguousarray(column[kept]))
            places.append(numbers[kept])
        counts = np.array([len(column) for column in places], dtype=np.int32)
        call(
            lib.LGBM_DatasetCreateFromSampledColumn(
                _pointers(values),
                _pointers(places),
                ctypes.c_int32(len(values)),
                counts.ctypes.data_as(ctypes.c_void_p),
                ctypes.c_int32(sample.shape[1]),
                ctypes.c_int32(n_rows),
                ctypes.c_int64(n_all),
                self.text,
                ctypes.byref(self._handle),
            )
        )
        return self

    def serialized(self) -> bytes:
        """Return the bounds as bytes for `load`. Frees the Dataset, so this object cannot be used again."""
        call, lib = self._basic._safe_call, self._basic._LIB
        buffer, size, byte = ctypes.c_void_p(), ctypes.c_int32(), ctypes.c_uint8()
        call(
            lib.LGBM_DatasetSerializeReferenceToBinary(self._handle, ctypes.byref(buffer), ctypes.byref(size))
        )
        data = bytearray(size.value)
        for i in range(size.value):
            call(lib.LGBM_ByteBufferGetAt(buffer, ctypes.c_int32(i), ctypes.byref(byte)))
            data[i] = byte.value
        call(lib.LGBM_ByteBufferFree(buffer))
        call(lib.LGBM_DatasetFree(self._handle))
        return bytes(data)

    def load(self, data: bytes, n_rows: int) -> Bins:
        """Load bounds that another process computed, for a Dataset that will hold n_rows rows."""
        self._basic._safe_call(
            self._basic._LIB.LGBM_DatasetCreateFromSerializedReference(
                ctypes.c_char_p(data),
                ctypes.c_int32(len(data)),
                ctypes.c_int64(n_rows),
                ctypes.c_int32(1),
                self.text,
                ctypes.byref(self._handle),
            )
        )
        return self

    def dataset(self, rows: StreamedRows, names: Sequence[str] | str) -> Any:
        """Put rows into these bins, and return the LightGBM Dataset.

        The number of rows must be the `n_rows` that was passed to `find` or `load` before.
        """
        made = lightgbm_module().Dataset(None, params=self.parameters)
        made._handle = self._handle
        _push(made, rows)
        made.set_feature_name(names)
        made.feature_name = made.get_feature_name()
        return made


def dataset(
    X: Any,
    *,
    parameters: dict[str, Any],
    names: Sequence[str] | str = "auto",
    categorical: Sequence[int] = (),
    reference: Any = None,
    init_score: Floats | None = None,
) -> Any:
    """Make a LightGBM Dataset of rows of any kind, with the bins of the Dataset `reference` if given."""
    lightgbm = lightgbm_module()
    # LightGBM requires labels, but would round them: it gets zeros, and the derivatives use the real labels
    labels = np.zeros(len(X), np.float32)
    if not isinstance(X, StreamedRows):
        options = {} if reference else {"feature_name": names, "categorical_feature": list(categorical)}
        return lightgbm.Dataset(
            plain_rows(X), labels, params=parameters, reference=reference, init_score=init_score, **options
        ).construct()
    if len(X) > _MOST:
        raise ValueError(
            f"LightGBM takes at most {_MOST:,} documents in a process; got {len(X):,}. Train on a cluster."
        )
    if reference is None:
        bins = Bins(parameters, categorical)
        found = bins.find(sample_of(X, sample_rows(parameters, len(X))), len(X), len(X))
        made = found.dataset(X, names)
    else:
        made = lightgbm.Dataset(None, params=dict(reference.params), reference=reference)
        made._init_from_ref_dataset(len(X), reference._handle)
        _push(made, X)
    made.set_label(labels)
    if init_score is not None:
        made.set_init_score(init_score)
    return made


def sample_rows(parameters: dict[str, Any], n: int) -> NDArray[Any]:
    """Indices of the rows, out of n, from which LightGBM computes bins, in increasing order.

    LightGBM draws these rows. If n is larger than LightGBM can count, which happens only on a cluster, the
    rows are drawn here.
    """
    basic = lightgbm_module().basic
    text = basic._param_dict_to_str(parameters)
    if n > _MOST:
        rng = np.random.default_rng(int(parameters.get("seed", 0)))
        return np.unique(rng.integers(n, size=basic._get_sample_count(_MOST, text)))
    numbers = np.empty(basic._get_sample_count(n, text), dtype=np.int32)
    count = ctypes.c_int32(0)
    drawn = basic._LIB.LGBM_SampleIndices(
        ctypes.c_int32(n), basic._c_str(text), numbers.ctypes.data_as(ctypes.c_void_p), ctypes.byref(count)
    )
    basic._safe_call(drawn)
    return numbers[: count.value]


def sample_of(X: StreamedRows, numbers: NDArray[Any]) -> Floats:
    """Return the features of S selected rows as an array (D, S), one column per row.

    numbers  Indices (S,) of the rows, in increasing order.
    """
    sample = np.empty((X.shape[1], len(numbers)))
    first = done = 0
    for block in X.row_blocks():
        last = first + len(block)
        stop = int(np.searchsorted(numbers, last))
        sample[:, done:stop] = block[numbers[done:stop] - first].T
        first, done = last, stop
    return sample


def _push(made: Any, rows: StreamedRows) -> None:
    """Pass the rows to a Dataset, which LightGBM completes after the last row.

    Raises a ValueError if the rows read are more or fewer than len(rows).
    """
    for block in rows.row_blocks():
        if made._start_row + len(block) > len(rows):
            break
        made._push_rows(np.ascontiguousarray(block))
    else:
        if made._start_row == len(rows):
            return
    raise ValueError(f"the stored set has changed: it no longer has {len(rows):,} documents.")


def _pointers(arrays: Sequence[NDArray[Any]]) -> Any:
    """Addresses of the arrays, as a C array."""
    pointers = (ctypes.c_void_p * len(arrays))()
    for i, array in enumerate(arrays):
        pointers[i] = array.ctypes.data
    return pointers
