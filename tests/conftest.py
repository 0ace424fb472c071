"""Settings of all tests."""

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)  # a machine may be busy with other work
settings.load_profile("shared machine")
