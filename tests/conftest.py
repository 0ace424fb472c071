"""Settings of all tests."""

import os

# OpenMP's threads, LightGBM's among them, keep a processor busy while they wait for each other, which takes
# ten times as long where other tests run beside. Read when a library is loaded, here and in processes begun.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)  # a machine may be busy with other work
settings.load_profile("shared machine")
