from django.tasks import task

from benchmarks.peers.tally import handle


@task
def counted(number: int, fill: str) -> None:
    handle(number)
