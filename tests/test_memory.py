"""The memory that one run may take."""

from __future__ import annotations

import resource
import sys

import pytest

from django_jobs.workers.memory import limited

MIB = 1024 * 1024
pytestmark = [pytest.mark.fast, pytest.mark.skipif(sys.platform != "linux", reason="Linux counts what is limited")]


def test_more_than_is_allowed_raises_memory_error_and_less_can_be_had() -> None:
    with limited(64 * MIB):
        assert len(bytearray(32 * MIB)) == 32 * MIB
        with pytest.raises(MemoryError):
            bytearray(128 * MIB)
    assert len(bytearray(128 * MIB)) == 128 * MIB


def test_the_limit_is_lifted_however_the_run_ends() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(MemoryError), limited(64 * MIB):
        _end_badly(before)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_without_a_limit_nothing_is_limited() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with limited(None):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before


def _end_badly(unlimited: tuple[int, int]) -> None:
    assert resource.getrlimit(resource.RLIMIT_DATA) != unlimited
    raise MemoryError
