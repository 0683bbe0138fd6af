import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.peers.tally import handle

dramatiq.set_broker(RedisBroker(url=os.environ["REDIS_URL"]))


@dramatiq.actor
def counted(number: int, fill: str) -> None:
    handle(number)
