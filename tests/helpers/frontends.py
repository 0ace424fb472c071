"""Front ends whose packages are not part of the light installation: their tests are skipped, or required."""

import importlib
import os

import pytest


def front_end(package, module):
    """Import a package and the module of sinkprop that needs it; skip the tests if the package is missing.

    With the environment variable SINKPROP_REQUIRE_FRONTENDS=1, a missing package is an error.
    """
    if os.environ.get("SINKPROP_REQUIRE_FRONTENDS") != "1":
        pytest.importorskip(package, reason=f'needs {package}: pip install "sinkprop[test-frontends]"')
    return importlib.import_module(package), importlib.import_module(module)
