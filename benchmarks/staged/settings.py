import os

from benchmarks.settings import *  # noqa: F403

# The zone whose clock is changed is not the server's.
TIME_ZONE = "UTC"
DJANGO_JOBS = {
    "DEAD_LETTER_ALERT": 1,
    "QUEUE_AGE_ALERT": float(os.environ.get("INCIDENT_AGE_ALERT", "15")),
    "SHUTDOWN_GRACE": 10,
}
