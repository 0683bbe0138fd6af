from django.apps import AppConfig


class Benchmark(AppConfig):
    name = "benchmarks.peers.django_jobs"
    label = "benchmark"
