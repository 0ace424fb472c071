"""Click logs on the command line: `sinkprop clicks`, and --clicks of `train` and `evaluate`."""

from typing import TYPE_CHECKING

from sinkprop.common.lazy import lazy_names

if TYPE_CHECKING:
    from sinkprop.cli.clicks.command import clicks_command

__all__ = ["clicks_command"]

# The command is imported at first use, since `train` and `evaluate` need only its options.
_LAZY = {"clicks_command": "sinkprop.cli.clicks.command"}

__getattr__, __dir__ = lazy_names(__name__, _LAZY)
