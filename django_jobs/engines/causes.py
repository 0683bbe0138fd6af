"""The causes in a job's history: how its runs ended, and what was done to it besides."""

from __future__ import annotations

import json

DIED = "died"
# A run that ended by it may live on and come back with an outcome.
LEASE_RAN_OUT = "lease ran out"
DATABASE_AWAY = "database away"
CONNECTION_BROKE = "connection broke"
STOPPED = "stopped"
WORKER_FAILED = "worker failed"
OUTCOME_LOST = "outcome lost"
DEADLINE = "deadline"
OUT_OF_MEMORY = "out of memory"
# What can count as a loss: no return, and no raise of the handler's own.
LOSSES = (DIED, LEASE_RAN_OUT, DATABASE_AWAY, CONNECTION_BROKE, WORKER_FAILED, OUT_OF_MEMORY, OUTCOME_LOST)
# No ends of runs, but what people did and what time did.
REQUEUED = "requeued"
CALLED_OFF = "called off"
ASKED_TO_STOP = "asked to stop"
EDITED = "edited"
TOO_LATE = "expired"
# Of a claim that goes back as if it had not been made; no line says it.
RELEASED = "released"
ACTS = (REQUEUED, CALLED_OFF, ASKED_TO_STOP, EDITED)

# Between the errors of a chain, in a stored text.
CAME_FROM = "\nwhich came from:\n\n"
# What an act of a person has instead of who did it and why.
NO_REASON = "no reason given"
# Lines of a job's history that are kept: the first, and the last nine.
HISTORY_LIMIT = 10
EXPIRED = "The time by which it had to start passed before a worker took it."
EXPIRED_ENTRY = json.dumps({"cause": TOO_LATE, "error": EXPIRED, "worker": "", "seconds": 0.0})
