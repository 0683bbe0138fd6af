"""Settings of a web server in a process of its own, on the databases of the session."""

from tests.settings import *  # noqa: F403

ALLOWED_HOSTS = ["127.0.0.1"]
