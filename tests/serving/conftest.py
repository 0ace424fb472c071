"""Scorers of rankers of every kind, and the rankers themselves."""

from __future__ import annotations

from functools import cache

import pytest
from scorer_rankers import ranker_of

from sinkprop import serving


@pytest.fixture(scope="session")
def loaded(tmp_path_factory):
    """Function from a name to a fitted ranker and the scorer of its file."""
    folder = tmp_path_factory.mktemp("models")

    @cache
    def both(name):
        path = folder / f"{abs(hash(name))}.model"
        ranker = ranker_of(name)
        ranker.save(path)
        return ranker, serving.load(path)

    return both
