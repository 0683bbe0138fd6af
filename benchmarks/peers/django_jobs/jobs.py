from benchmarks.peers.tally import handle
from django_jobs import job


@job
def counted(number: int, fill: str = "") -> None:
    handle(number)
