import os

from celery import Celery

from benchmarks.peers.tally import handle

killed = os.environ["HANDLER"] == "hang"
app = Celery("benchmark", broker=os.environ["REDIS_URL"])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=1 if killed else 64,
    task_acks_late=killed,
    task_reject_on_worker_lost=killed,
)


@app.task
def counted(number: int, fill: str) -> None:
    handle(number)
