"""Text forms of gains, such as "ndcg@10" and "0.8*ndcg@10 + 0.2*mrr": `parse_gain`, and `as_gain`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NoReturn

from sinkprop.common.text_forms import FORM, only, options_of, read_number, unknown_form
from sinkprop.objective.gains.base import Discount, Gain, GainSum
from sinkprop.objective.gains.rank_linear import NDCG, NDCG_DEFAULTS, RBP, RankLinearGain

__all__ = ["FORMS", "as_gain", "as_rank_linear", "parse_gain"]

FORMS = (
    "ndcg, ndcg@10, ndcg(discount=log2,gain=linear)@10, p@5, p(threshold=2)@5, rbp@0.8, map, map@10, mrr@10, "
    "err(max_grade=4)@20, recall@10, f@10, alphandcg(alpha=0.5)@10, erria@10, exposuregap(groups=1,merit=0), "
    "expectedexposure, sums such as 0.8*ndcg@10 + 0.2*mrr, and ndcg@10[1] for the second label column"
)


def as_gain(value: str | Gain, discount: Discount | None = None) -> Gain:
    """Parse the text form of a gain; return a `Gain` unchanged, except for a discount that it leaves open.

    discount  Discount of NDCG if `value` does not state one; None leaves it open.

    >>> as_gain("rbp@0.9") == as_gain(RBP(0.9))
    True
    >>> str(as_gain("ndcg@5", "log2")), str(as_gain("ndcg(discount=letor)@5", "log2"))
    ('ndcg(discount=log2)@5', 'ndcg(discount=letor)@5')
    """
    if isinstance(value, str):
        value = parse_gain(value)
    elif not isinstance(value, Gain):
        _reject(value)
    return value if discount is None else value.stated(discount)


def _reject(value: Any) -> NoReturn:
    hint = ""
    if isinstance(value, type):
        hint = f" Did you mean {value.__name__}(...), an instance?"
    elif callable(value):
        hint = (
            " A function goes into RankLinear(gain=, discount=), RankLinear(table=), "
            "ColumnGain(attributes=, function=) or RowGain(function=)."
        )
    raise TypeError(
        f"gain must be a Gain such as NDCG(10), or a text such as 'ndcg@10'; got {value!r}.{hint}"
    )


def as_rank_linear(value: str | Gain, who: str, discount: Discount | None = None) -> RankLinearGain:
    """Return a rank-linear gain as `as_gain` does; raise a ValueError that names `who` for any other."""
    gain = as_gain(value, discount)
    if not isinstance(gain, RankLinearGain):
        raise ValueError(
            f"gain: {who} takes rank-linear gains only, such as 'ndcg@10', 'p@5' or 'rbp@0.8'; got "
            f"{str(gain)!r}. SinkPropRanker, BoostedRanker and NeuralRanker train on every gain."
        )
    return gain


@lru_cache(maxsize=64)
def parse_gain(text: str) -> Gain:
    """Parse the text form of a gain: the inverse of `str`.

    Parameters
    ----------
    text : str
        The name of a gain, with options in parentheses, a cutoff after "@" and label columns in brackets:
        "ndcg", "ndcg@K", "p@K" (also "precision@K"), "rbp@P", "map@K", "mrr@K", "err@K", "recall@K", "f@K",
        "alphandcg@K", "erria@K", "exposuregap(groups=C)" or "expectedexposure"; or a weighted sum of these.
        Case does not matter.

    Returns
    -------
    Gain
        The gain.

    Raises
    ------
    ValueError
        If the text is not the form of a gain.

    Examples
    --------
    >>> parse_gain("NDCG(discount=log2, gain=linear)@10")
    NDCG(k=10, discount='log2', gain='linear')
    >>> str(parse_gain("0.7 * ndcg@10 + 0.3 * ndcg(gain=linear)@10[1]"))
    '0.7*ndcg@10 + 0.3*ndcg(gain=linear)@10[1]'
    """
    parts: list[tuple[float, Gain]] = []
    place = 0
    while place < len(text.rstrip()):
        match = _PART.match(text, place)
        if match is None or not (match["sign"] or not parts):
            unknown_form("gain", text, (*_READERS, *_ALIASES), FORMS)
        weight = 1.0 if match["weight"] is None else read_number(float, "a weight", match["weight"])
        parts.append((-weight if match["sign"] == "-" else weight, _read(text, match)))
        place = match.end()
    if not parts:
        unknown_form("gain", text, (*_READERS, *_ALIASES), FORMS)
    return parts[0][1] if len(parts) == 1 and parts[0][0] == 1 else GainSum(tuple(parts))


def _read(text: str, match: re.Match[str]) -> Gain:
    """Read one gain of a sum. `text` is the whole text, for error messages."""
    form = FORM.fullmatch(match["form"].lower())
    name = None if form is None else _ALIASES.get(form["name"], form["name"])
    if form is None or name not in _READERS:
        unknown_form("gain", text, (*_READERS, *_ALIASES), FORMS)
    try:
        gain = _READERS[name](options_of(form["options"]), form["cutoff"])
    except (TypeError, ValueError) as error:
        raise ValueError(f"gain {text!r}: {error} The forms are {FORMS}.") from None
    if match["columns"] is None:
        return gain
    return gain.on(tuple(int(column) for column in match["columns"].split(",")))


_NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
_PART = re.compile(
    rf"\s*(?P<sign>[-+])?\s*(?:(?P<weight>{_NUMBER})\s*\*\s*)?"
    r"(?P<form>(?:alpha[-_]ndcg|err[-_]ia|[a-z]+)\s*(?:\([^()]*\))?\s*"
    rf"(?:@\s*[-+]?(?:{_NUMBER}|[^@\s+\[-]+))?)"
    r"\s*(?:\[\s*(?P<columns>\d+(?:\s*,\s*\d+)*)\s*\])?\s*",
    re.IGNORECASE,
)

_ALIASES = {
    "precision": "p",
    "alpha-ndcg": "alphandcg",
    "alpha_ndcg": "alphandcg",
    "err-ia": "erria",
    "err_ia": "erria",
}

Reader = Callable[[dict[str, str], "str | None"], Gain]


def _made(name: str, *arguments: Any, **options: Any) -> Gain:
    """Make a gain of a module that is imported only now."""
    from sinkprop.objective import gains

    gain: Gain = getattr(gains, name)(*arguments, **options)
    return gain


def _reader(name: str, *options: str, example: str = "") -> Reader:
    """Return a reader of a gain with numbers as options; one that needs a cutoff has an `example`."""

    def read(given: dict[str, str], k: str | None) -> Gain:
        only(given, options)
        values = {_FIELDS.get(o, o): read_number(float, o, value) for o, value in given.items()}
        if k is None and example:
            raise ValueError(f"{_WORDS.get(name, name)} needs a cutoff, such as {example}.")
        return _made(name, None if k is None else read_number(int, "the cutoff after @", k), **values)

    return read


_WORDS = {"Precision": "precision", "Recall": "recall", "FMeasure": "the F-measure", "ERRIA": "ERR-IA"}
_FIELDS = {"max_grade": "max_label"}  # options that have another name as a parameter


def _read_ndcg(options: dict[str, str], cutoff: str | None) -> Gain:
    only(options, tuple(NDCG_DEFAULTS))
    chosen: dict[str, Any] = options
    return NDCG(None if cutoff is None else read_number(int, "the cutoff after @", cutoff), **chosen)


def _read_rbp(options: dict[str, str], cutoff: str | None) -> Gain:
    only(options, ())
    return RBP() if cutoff is None else RBP(read_number(float, "the persistence after @", cutoff))


def _exposure_reader(made: str, columns: tuple[str, ...], needed: tuple[str, ...]) -> Reader:
    def read(given: dict[str, str], k: str | None) -> Gain:
        only(given, (*columns, "exposure"))
        for name in needed:
            if name not in given:
                raise ValueError(f"{name}= is missing: the number of a label column, from 0.")
        values: dict[str, Any] = {
            name: x if name == "exposure" else read_number(int, name, x) for name, x in given.items()
        }
        return _made(made, **values, k=None if k is None else read_number(int, "the cutoff after @", k))

    return read


_READERS: dict[str, Reader] = {
    "ndcg": _read_ndcg,
    "p": _reader("Precision", "threshold", example="p@5"),
    "rbp": _read_rbp,
    "map": _reader("AveragePrecision", "threshold"),
    "mrr": _reader("ReciprocalRank", "threshold"),
    "err": _reader("ERR", "max_grade"),
    "recall": _reader("Recall", "threshold", example="recall@10"),
    "f": _reader("FMeasure", "beta", "threshold", example="f@10"),
    "alphandcg": _reader("AlphaNDCG", "alpha", "threshold"),
    "erria": _reader("ERRIA", "alpha", "threshold", example="erria@10"),
    "exposuregap": _exposure_reader("ExposureGap", ("groups", "merit"), ("groups",)),
    "expectedexposure": _exposure_reader("ExpectedExposure", ("target",), ()),
}
