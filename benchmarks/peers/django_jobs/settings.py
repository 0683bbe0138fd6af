from benchmarks.settings import *  # noqa: F403

INSTALLED_APPS = ["django_jobs", "benchmarks.peers.django_jobs.apps.Benchmark"]
