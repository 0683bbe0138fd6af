"""pgqueuer, as its page on performance advises: asyncpg and uvloop, its own autovacuum settings, a connection of its own
for the worker, large batches for short jobs. Durability is its default ("durable"), as that of all others here.

Batches of 500 drain fastest here (25 is its example, 10 its default). It has no threads: for handlers that wait,
`max_concurrent_tasks` bounds how many run at once, and a batch can be half of that at most. Its processes are the operator's.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pgqueuer
import uvloop
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers import verbs
from benchmarks.peers.tally import ahandle, handle, sleep

BATCH = 500
TYPE = "nothing"


@asynccontextmanager
async def queries() -> AsyncIterator[Queries]:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    yield Queries(AsyncpgDriver(connection))
    await connection.close()


@asynccontextmanager
async def worker() -> AsyncIterator[pgqueuer.PgQueuer]:
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    queue = pgqueuer.PgQueuer(AsyncpgDriver(connection))

    @queue.entrypoint(TYPE)
    async def nothing(job: Job) -> None:
        assert job.payload is not None
        await ahandle(int(job.payload.split()[0]))

    yield queue
    await connection.close()


async def setup() -> None:
    async with queries() as queue:
        await queue.install()
        await queue.optimize_autovacuum()


async def enqueue(calls: verbs.Calls) -> None:
    async with queries() as queue:
        for number, fill in calls:
            await queue.enqueue(TYPE, f"{number} {fill}".encode())


async def bulk(calls: verbs.Calls) -> None:
    async with queries() as queue:
        for chunk in verbs.chunks(calls, 1_000):
            payloads = [f"{number} {fill}".encode() for number, fill in chunk]
            await queue.enqueue([TYPE] * len(chunk), payloads, [0] * len(chunk))


def work(processes: int, threads: int) -> None:
    waits = handle is sleep
    limits = {"batch_size": threads // 2, "max_concurrent_tasks": threads} if waits else {"batch_size": BATCH}
    verbs.in_processes(processes, lambda: uvloop.run(pgqueuer.run(worker, **limits)))


if __name__ == "__main__":
    verbs.main(
        setup=lambda: uvloop.run(setup()),
        enqueue=lambda calls: uvloop.run(enqueue(calls)),
        bulk=lambda calls: uvloop.run(bulk(calls)),
        work=work,
    )
