"""Shared by all tests."""

from hypothesis import settings

# No deadline: a busy machine is not a fault. The same examples every time: a failure repeats.
settings.register_profile("kscn", deadline=None, derandomize=True)
settings.load_profile("kscn")
