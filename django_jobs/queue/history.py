"""The lines of `Job.history`: one for each run that did not succeed."""

from __future__ import annotations

from django_jobs import payload


def entry(run: int, cause: str, error: str, worker: str, seconds: float) -> str:
    """Return a run's line as JSON; `seconds` is how long it ran, and the engine adds when it ended."""
    return payload.dump(
        {"run": run, "cause": cause, "error": error, "worker": worker, "seconds": round(float(seconds), 3)}
    )


def late(timeout: float | None) -> str:
    """Say that a run passed its deadline."""
    return "The run passed its deadline" + (f" of {timeout:g} s" if timeout is not None else "")
