"""oban with what its `oban start` sets (orjson, pool of ten, pruner and lifeline on), in uvloop; no log line per job.

A queue's limit is how many jobs it claims and runs at once; since its loop acknowledges and claims in turn, a large one drains
short jobs fastest. More than one process on several cores is sold with Oban Pro; here they are the operator's.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from signal import SIGTERM

import orjson
import uvloop
from oban import Oban, job
from oban.schema import install
from psycopg.types.json import set_json_dumps, set_json_loads
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers import verbs
from benchmarks.peers.tally import ahandle, handle, sleep

LIMIT = 200


@job(queue="default")
async def counted(number: int, fill: str) -> None:
    await ahandle(number)


@asynccontextmanager
async def pool() -> AsyncIterator[AsyncConnectionPool]:
    set_json_dumps(orjson.dumps)
    set_json_loads(orjson.loads)
    made = await Oban.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=10)
    yield made
    await made.close()


async def setup() -> None:
    async with pool() as connections:
        await install(connections)


async def enqueue(calls: verbs.Calls) -> None:
    async with pool() as connections, Oban(pool=connections) as oban:
        for number, fill in calls:
            await oban.enqueue(counted.new(number, fill))


async def bulk(calls: verbs.Calls) -> None:
    async with pool() as connections, Oban(pool=connections) as oban:
        for chunk in verbs.chunks(calls, 1_000):
            await oban.enqueue_many(counted.new(*call) for call in chunk)


async def run(threads: int) -> None:
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(SIGTERM, ended.set)
    limit = threads if handle is sleep else LIMIT
    async with pool() as connections, Oban(pool=connections, queues={"default": limit}):
        await ended.wait()


def work(processes: int, threads: int) -> None:
    verbs.in_processes(processes, lambda: uvloop.run(run(threads)))


if __name__ == "__main__":
    verbs.main(
        setup=lambda: uvloop.run(setup()),
        enqueue=lambda calls: uvloop.run(enqueue(calls)),
        bulk=lambda calls: uvloop.run(bulk(calls)),
        work=work,
    )
