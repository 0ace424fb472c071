"""Fixtures of the tests of sinkprop.torch."""

import pytest


@pytest.fixture
def sweeps_from_five(monkeypatch):
    """The torch backend with sweeps for queries of five documents or more, and matrices for shorter ones."""
    from sinkprop.torch.losses import expectations

    monkeypatch.setattr(expectations, "_FROM", 5)
