"""Signals that a project may receive. What a receiver raises is logged and changes nothing; see docs/signals.md."""

from __future__ import annotations

from django.dispatch import Signal

# Of these the sender is the `job_type` of the function, as in `job_started.connect(receive, sender=send_receipt.job_type)`, and
# None for a type that is unknown to the process that sends. All have `job_id`, `job_type` (its name) and `queue`.

# Besides: `using`, the alias of the jobs' database. Sent in the caller's transaction, which may still be rolled back.
job_enqueued = Signal()
# Besides: `attempt` and `run`, as in Context. Sent on the thread of the run, before the function is called.
job_started = Signal()
# Besides: `attempt`, `run`, `status`, `cause`, `error` and `seconds`. Sent when the end of a run is stored, and only then:
# to `job_retrying` if the job goes back to run again, else to `job_finished`, and of those that are dead or failed to `job_dead`.
job_finished = Signal()
job_retrying = Signal()
job_dead = Signal()
# Besides: `schedule`, its name, and `slot`. Sent when the job of a slot is committed.
schedule_fired = Signal()

# Sent in the process of a supervisor, with `alert`, a row of django_jobs.models.Alert: when a threshold is passed, and when
# it is kept again. At least once for each, and by one supervisor unless it is killed meanwhile.
alert_raised = Signal()
alert_cleared = Signal()
