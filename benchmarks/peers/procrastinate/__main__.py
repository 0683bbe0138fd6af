"""procrastinate with asynchronous tasks, which is where its `concurrency` helps, psycopg with its C part, and uvloop.

It claims one job at a time whatever the concurrency; 30 at once drain short jobs fastest here (the default is one). Finished
jobs are kept, as by default and by most others here. `batch_defer` in thousands. Jobs of killed workers are only found by a
periodic task of the project, which its page on stalled jobs shows: there every ten minutes, for kill -9 here every minute.
"""

import os

import uvloop
from procrastinate import App, PsycopgConnector

from benchmarks.peers import verbs
from benchmarks.peers.tally import ahandle, handle, hang

CONCURRENCY = 30

app = App(connector=PsycopgConnector(conninfo=os.environ["DATABASE_URL"]))


@app.task
async def counted(number: int, fill: str) -> None:
    await ahandle(number)


if handle is hang:

    @app.periodic(cron="* * * * *")
    @app.task(queueing_lock="stalled")
    async def retry_stalled(timestamp: int) -> None:
        for job in await app.job_manager.get_stalled_jobs():
            await app.job_manager.retry_job(job)


async def setup() -> None:
    async with app.open_async():
        await app.schema_manager.apply_schema_async()


async def enqueue(calls: verbs.Calls) -> None:
    async with app.open_async():
        for number, fill in calls:
            await counted.defer_async(number=number, fill=fill)


async def bulk(calls: verbs.Calls) -> None:
    async with app.open_async():
        for chunk in verbs.chunks(calls, 1_000):
            await counted.batch_defer_async(*({"number": number, "fill": fill} for number, fill in chunk))


async def run(concurrency: int) -> None:
    async with app.open_async():
        await app.run_worker_async(concurrency=concurrency)


def work(processes: int, threads: int) -> None:
    verbs.in_processes(processes, lambda: uvloop.run(run(max(threads, CONCURRENCY))))


if __name__ == "__main__":
    verbs.main(
        setup=lambda: uvloop.run(setup()),
        enqueue=lambda calls: uvloop.run(enqueue(calls)),
        bulk=lambda calls: uvloop.run(bulk(calls)),
        work=work,
    )
