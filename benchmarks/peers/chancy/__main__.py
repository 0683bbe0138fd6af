"""chancy with the executor that its guide has for many small jobs: the asynchronous one, in the worker's event loop.

`eager_polling` asks for more as soon as there is room, where otherwise a full queue waits for its next poll; 100 at once are
the executor's default, and drained fastest here. psycopg with its C part, uvloop, and all default plugins (leadership, recovery,
pruning, metrics). Its logger writes a line for each job at INFO, which is turned off. Its processes are the operator's.
"""

import logging
import os

import uvloop
from chancy import Chancy, Queue, Worker
from chancy.job import job

from benchmarks.peers import verbs
from benchmarks.peers.tally import ahandle, handle, sleep

CONCURRENCY = 100


@job(queue="default")
async def counted(*, number: int, fill: str) -> None:
    await ahandle(number)


def app() -> Chancy:
    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(os.environ["DATABASE_URL"], log=log)


async def setup() -> None:
    async with app() as queue:
        await queue.migrate()


async def enqueue(calls: verbs.Calls) -> None:
    async with app() as queue:
        for number, fill in calls:
            await queue.push(counted.job.with_kwargs(number=number, fill=fill))


async def bulk(calls: verbs.Calls) -> None:
    async with app() as queue:
        jobs = [counted.job.with_kwargs(number=number, fill=fill) for number, fill in calls]
        async for _ in queue.push_many(jobs):
            pass


async def run(threads: int) -> None:
    concurrency = threads if handle is sleep else CONCURRENCY
    queue = Queue(
        "default", concurrency=concurrency, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True
    )
    async with app() as chancy:
        await chancy.declare(queue, upsert=True)
        async with Worker(chancy) as worker:
            await worker.wait_for_shutdown()


def work(processes: int, threads: int) -> None:
    verbs.in_processes(processes, lambda: uvloop.run(run(threads)))


if __name__ == "__main__":
    verbs.main(
        setup=lambda: uvloop.run(setup()),
        enqueue=lambda calls: uvloop.run(enqueue(calls)),
        bulk=lambda calls: uvloop.run(bulk(calls)),
        work=work,
    )
