"""What holds for all tests: no test fails because a machine is slow."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("house", deadline=None)
settings.load_profile("house")
