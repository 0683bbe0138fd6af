"""Whether this process runs tests, as Django's test runner and pytest-django say."""

from __future__ import annotations

import sys


def is_set_up() -> bool:
    """Tell whether `setup_test_environment()` was called; nothing of Django's test support is imported for the question."""
    found = getattr(sys.modules.get("django.test.utils"), "_TestState", None)
    return hasattr(found, "saved_data")
