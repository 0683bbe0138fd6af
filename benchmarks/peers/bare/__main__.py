"""A loop of psycopg: what is above it is the price of everything that a queue does.

It claims 100 rows and completes them in one UPDATE each: no leases, no retries, no history, nothing survives a kill.
Jobs in bulk are a COPY. It listens so as to wake up, but only what is sent to measure latency pays for a NOTIFY.
"""

import os

import psycopg
from psycopg.types.json import Jsonb

from benchmarks.peers import verbs
from benchmarks.peers.tally import handle

TABLE = """
CREATE TABLE bare (id bigserial PRIMARY KEY, payload jsonb NOT NULL, status text NOT NULL DEFAULT 'ready');
CREATE INDEX bare_ready ON bare (id) WHERE status = 'ready';
"""
CLAIM = """
UPDATE bare SET status = 'running'
 WHERE id = ANY (ARRAY(SELECT id FROM bare WHERE status = 'ready' ORDER BY id LIMIT 100 FOR UPDATE SKIP LOCKED))
RETURNING id, payload
"""
COMPLETE = "UPDATE bare SET status = 'done' WHERE id = ANY (%s)"
INSERT = "INSERT INTO bare (payload) VALUES (%s)"
INSERT_AND_NOTIFY = "WITH job AS (INSERT INTO bare (payload) VALUES (%s)) SELECT pg_notify('bare', '')"


def connect() -> psycopg.Connection:
    return psycopg.connect(os.environ["DATABASE_URL"], autocommit=True, prepare_threshold=1)


def setup() -> None:
    with connect() as connection:
        connection.execute(TABLE)


def enqueue(calls: verbs.Calls, statement: str = INSERT) -> None:
    with connect() as connection:
        for call in calls:
            connection.execute(statement, [Jsonb({"args": call})])


def trickle(calls: verbs.Calls) -> None:
    enqueue(calls, INSERT_AND_NOTIFY)


def bulk(calls: verbs.Calls) -> None:
    with connect() as connection, connection.cursor().copy("COPY bare (payload) FROM STDIN") as copy:
        for number, fill in calls:
            copy.write_row([f'{{"args": [{number}, "{fill}"]}}'])


def work(processes: int, threads: int) -> None:
    verbs.in_processes(processes, loop)


def loop() -> None:
    with connect() as connection:
        connection.execute("LISTEN bare")
        while True:
            while rows := connection.execute(CLAIM).fetchall():
                for _, payload in rows:
                    handle(payload["args"][0])
                connection.execute(COMPLETE, [[row[0] for row in rows]])
            for _ in connection.notifies(timeout=1.0, stop_after=1):
                pass


if __name__ == "__main__":
    verbs.main(setup=setup, enqueue=enqueue, bulk=bulk, work=work, trickle=trickle)
