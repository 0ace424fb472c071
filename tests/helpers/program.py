"""The command line, run in this process."""

from dataclasses import dataclass

import pytest

from sinkprop import cli


@dataclass(frozen=True)
class Run:
    status: int
    out: str
    error: str


def run_here(capfd, *arguments) -> Run:
    """Call the program with these arguments; `capfd` is pytest's fixture."""
    capfd.readouterr()
    with pytest.raises(SystemExit) as exit_:
        cli.main([str(argument) for argument in arguments])
    return Run(exit_.value.code, *capfd.readouterr())
