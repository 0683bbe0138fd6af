"""A database as a busy shop has it after a week: by far the most jobs are done, some are dead, some wait."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection, models
from django.db.models.functions import Now, TruncMinute

from benchmarks.jobs import nothing
from django_jobs.models import BulkAct, Effect, Pause, Schedule, Stat, Worker

LIVE = "live"
TYPES = [f"shop.jobs.{name}" for name in (
    "send_receipt", "send_newsletter", "remind", "charge", "refund", "book", "export_orders", "import_stock",
    "reindex", "resize_image", "make_label", "make_invoice", "sync_customer", "sync_price", "score", "notify_vendor",
    "close_day", "count_stock", "clean_up", "call_webhook",
)]  # fmt: skip
QUEUES = ["default", "mail", "newsletter", "reports", "images", "sync"]
ERRORS = [
    "smtplib.SMTPServerDisconnected: Connection unexpectedly closed while sending message %s",
    "requests.exceptions.ConnectionError: HTTPSConnectionPool(host=''api.example.com'', port=443): /orders/%s",
    "TimeoutError: the answer to request %s took longer than 30 s",
    "django_jobs.exceptions.JobTimeout: run %s did not end within 900 s",
    "ValueError: no such order: %s",
    "KeyError: ''customer_%s''",
    "psycopg.errors.DeadlockDetected: deadlock detected by process %s",
    "decimal.InvalidOperation: [<class ''decimal.ConversionSyntax''>]",
]
FRAME = (
    '  File "/srv/shop/releases/current/shop/jobs.py", line %s, in %s' + "\\n" + "    order = Order.objects.get(pk=%s)"
)
# Of how much a minute or an hour has, n of them ago.
WAVES = "(1 + 0.4 * sin(n / 9.0) + (n * 37 % 11 - 5) / 10.0)"
FRAMES = 18  # make the tracebacks 2 KiB


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    finished: int
    hot: float
    dead: int
    waiting: int
    days: int = 7
    processes: int = 8

    @property
    def archived(self) -> int:
        return int(self.finished * (1 - self.hot))

    @property
    def step(self) -> int:
        """Every how many of the old ids one is that of a dead job."""
        return max(self.archived // max(self.dead, 1), 1) + 1


def fill(sizes: Sizes) -> None:
    """Fill an empty, migrated database, and leave nothing to be caught up with."""
    for name, step in (
        ("archive", archive),
        ("dead", dead),
        ("done", done),
        ("waiting", waiting),
        ("running", running),
        ("statistics", statistics),
        ("others", others),
    ):
        began = time.monotonic()
        step(sizes)
        print(f"filled {name} in {time.monotonic() - began:.0f} s", flush=True)
    _run("SELECT setval('django_jobs_job_id_seq', (SELECT max(id) FROM django_jobs_job))")
    _run("VACUUM ANALYZE")
    _run("CHECKPOINT")


def keep_alive() -> None:
    """Have the processes that are only rows send their heartbeat."""
    Worker.objects.filter(host__startswith="filled-").update(heartbeat_at=Now())


def _run(statement: str, parameters: Any = None) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)


def _of(names: list[str], number: str) -> str:
    """Return SQL for one of some names, by a number."""
    return f"(ARRAY[{', '.join(repr(name) for name in names)}])[1 + ({number}) % {len(names)}]"


COLUMNS = "type, queue, priority, payload, idempotency_key, meta"
# Of row n. The number of the type is not that of the rest, so that each type has jobs of each kind.
VALUES = f"""
{_of(TYPES, "n * 31 / 7")}, {_of(QUEUES, "n / 7")}, (ARRAY[0, 0, 0, 10, -10])[1 + n % 5],
jsonb_build_object('args', jsonb_build_array(n % 10000, 'customer-' || n % 977),
                   'kwargs', jsonb_build_object('order_id', n, 'channel', (ARRAY['web', 'app', 'shop'])[1 + n % 3])),
CASE WHEN n % 4 = 0 THEN 'order:' || n END,
CASE WHEN n % 10 = 0 THEN '{{"tags": ["vip"]}}'::jsonb ELSE '{{}}'::jsonb END
"""
ENDED = "status, token, created_at, run_at, started_at, last_started_at, finished_at"


def archive(sizes: Sizes) -> None:
    """A partition for each day, as the archive's own are; filled before it is attached, which makes its indexes."""
    each = (sizes.archived + sizes.archived // sizes.step) // sizes.days + 1
    for day in range(sizes.days):
        name = f"django_jobs_archivedjob_filled_{day}"
        _run(f"CREATE TABLE {name} (LIKE django_jobs_archivedjob INCLUDING DEFAULTS)")
        first = 1 + day * each
        start = f"date_trunc('day', statement_timestamp() AT TIME ZONE 'UTC') - interval '{sizes.days - 1 - day} days'"
        until = f"least(({start}) AT TIME ZONE 'UTC' + interval '86399 seconds', statement_timestamp())"
        at = f"{until} - (1 - (n - {first})::float8 / {each}) * ({until} - ({start}) AT TIME ZONE 'UTC')"
        _run(
            f"INSERT INTO {name} (id, archived_at, result, {COLUMNS}, {ENDED}) "
            f"SELECT n, moved, to_jsonb(n), {VALUES}, "
            "CASE n % 50 WHEN 0 THEN 'dead' WHEN 1 THEN 'cancelled' ELSE 'done' END, 1, "
            "ended - interval '3 seconds', ended - interval '3 seconds', ended - interval '1 second', "
            f"ended - interval '1 second', ended FROM (SELECT n, {at} AS moved, {at} - interval '1 day' AS ended "
            f"FROM generate_series({first}, {first + each - 1}) n WHERE n % {sizes.step} <> 0) numbers"
        )
        _run(
            f"DO $$ BEGIN EXECUTE format('ALTER TABLE django_jobs_archivedjob ATTACH PARTITION {name} FOR VALUES FROM "
            f"(%L) TO (%L)', ({start}) || '+00', ({start} + interval '1 day') || '+00'); END $$"
        )


def _error(number: str) -> str:
    """Return SQL for a traceback of 2 KiB."""
    frames = f"repeat(format(E'{FRAME}', 100 + n % 80, {_of(['get', 'save', 'send'], 'n')}, n) || E'\\n', {FRAMES})"
    last = f"format({_of_texts(ERRORS, number)}, n)"
    return f"E'Traceback (most recent call last):\\n' || {frames} || {last}"


def _of_texts(texts: list[str], number: str) -> str:
    return "(ARRAY[" + ", ".join(f"'{text}'" for text in texts) + f"])[1 + ({number}) % {len(texts)}]"


HISTORY = """
(SELECT jsonb_agg(jsonb_build_object(
     'run', run, 'cause', 'error', 'error', {}, 'worker', 'web-' || run || ':' || 1000 + n % 7, 'seconds', 0.1 * run,
     'at', to_char(ended - (5 - run) * interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')) ORDER BY run)
   FROM generate_series(1, {}) run)
"""


def dead(sizes: Sizes) -> None:
    """Some failed for good, most after all their attempts, over the month for which they are kept."""
    ended = f"statement_timestamp() - interval '29 days' * (1 - n::float8 / {sizes.dead * sizes.step})"
    shown = f"format({_of_texts(ERRORS, 'n / 11')}, n)"
    _run(
        f"INSERT INTO django_jobs_job (id, attempts, max_attempts, last_error, history, {COLUMNS}, {ENDED}) "
        f"SELECT n, 5, 5, {_error('n / 11')}, {HISTORY.format(shown, 5)}, {VALUES}, "
        "CASE n / 13 % 9 WHEN 0 THEN 'failed' ELSE 'dead' END, 5, "
        "ended - interval '10 minutes', ended - interval '1 minute', ended - interval '9 minutes', "
        f"ended - interval '1 second', ended FROM (SELECT n, {ended} AS ended "
        f"FROM generate_series({sizes.step}, {sizes.dead * sizes.step}, {sizes.step}) n) numbers"
    )


def done(sizes: Sizes) -> None:
    """What ended within a day, and is in the table of jobs as yet."""
    number = max(sizes.finished - sizes.archived, 1)
    ended = f"statement_timestamp() - interval '23 hours' * (1 - (n - {_beyond(sizes)})::float8 / {number})"
    _run(
        f"INSERT INTO django_jobs_job (id, result, {COLUMNS}, {ENDED}) "
        f"SELECT n, to_jsonb(n), {VALUES}, CASE n % 50 WHEN 1 THEN 'cancelled' ELSE 'done' END, 1, "
        "ended - interval '3 seconds', ended - interval '3 seconds', ended - interval '1 second', "
        f"ended - interval '1 second', ended FROM (SELECT n, {ended} AS ended "
        f"FROM generate_series({_beyond(sizes) + 1}, {_beyond(sizes) + number}) n) numbers"
    )


def _beyond(sizes: Sizes) -> int:
    """Return an id beyond all that are archived or dead."""
    return max(2 * sizes.archived, (sizes.dead + 1) * sizes.step)


def waiting(sizes: Sizes) -> None:
    """Due in queues that nobody serves, or that are paused; parked; for later; and to be tried again."""
    first = _beyond(sizes) + sizes.finished
    kinds = [
        # share, due from and to in seconds, parked, attempts
        (0.50, -7200, 0, "NULL", 0),
        (0.10, -7200, 0, "'type'", 0),
        (0.04, -3600, 0, "'pause'", 0),
        (0.01, 3600, 7200, "'suspect'", 2),
        (0.20, 60, 86_400, "NULL", 0),
        (0.15, 60, 7200, "NULL", 3),
    ]
    for share, since, until, parked, attempts in kinds:
        number = int(sizes.waiting * share)
        due = f"statement_timestamp() + ({since} + ({until} - ({since})) * (n - {first})::float8 / {number}) * interval '1 s'"
        error = f"{_error('n / 11')}" if attempts else "''"
        line = HISTORY.format(f"format({_of_texts(ERRORS, 'n / 11')}, n)", attempts) if attempts else "'[]'::jsonb"
        _run(
            f"INSERT INTO django_jobs_job (id, parked, attempts, suspect, token, last_error, history, created_at, "
            f"run_at, {COLUMNS}) SELECT n, {parked}, {attempts}, {parked} IS NOT DISTINCT FROM 'suspect', {attempts}, "
            f"{error}, {line}, statement_timestamp() - interval '3 hours', {due}, {VALUES} "
            f"FROM (SELECT n, statement_timestamp() AS ended FROM generate_series({first}, {first + number - 1}) n) numbers"
        )
        first += number


def running(sizes: Sizes) -> None:
    """What the processes run that are only rows, for so long that none of it is taken for lost."""
    Worker.objects.bulk_create(
        Worker(id=f"{number:032x}", host=f"filled-{number}", pid=4000 + number, supervisor_pid=4000, types=TYPES,
               queues=QUEUES, threads=8)
        for number in range(sizes.processes)
    )  # fmt: skip
    first = _beyond(sizes) + sizes.finished + sizes.waiting
    last = first + 8 * sizes.processes - 1
    _run(
        "INSERT INTO django_jobs_job (id, status, token, locked_by, locked_until, started_at, last_started_at, "
        f"{COLUMNS}) SELECT n, 'running', 1, lpad(to_hex(n % {sizes.processes}), 32, '0') || ':' || n, "
        "statement_timestamp() + interval '1 day', statement_timestamp() - interval '1 minute', "
        f"statement_timestamp() - interval '1 minute', {VALUES} FROM generate_series({first}, {last}) n"
    )


def statistics(sizes: Sizes) -> None:
    """As they are when they are folded: an hour of minutes for each process, a day of tens of minutes, and hours."""
    (minute,) = Worker.objects.values_list(TruncMinute(Now()), flat=True)[:1]
    hour = minute.replace(minute=0)
    _counted(minute, 60, 1, [f"{process:032x}" for process in range(sizes.processes)])
    _counted(hour - timedelta(hours=1, minutes=10), 600, 10 * sizes.processes, [""])
    _counted(hour - timedelta(days=1, hours=1), 3600, 60 * sizes.processes, [""])
    for seconds, times in ((60, 90), (600, 140), (3600, 24 * (sizes.days - 1))):
        _repeat(Stat, "minute", f"seconds = {seconds}", times, f"{seconds} s")


def _counted(minute: datetime, seconds: int, times: int, incarnations: list[str]) -> None:
    """Store what each process has counted of each type in so many seconds, which is what it does in a minute, so often."""
    counters = {"done": 12, "retried": 1, "dead": 1, "repeats": 1, "run_seconds": 1.5, "wait_seconds": 2.0}
    lists = {"runs": [0, 0, 1, 2, 3, 4, 2, 1, 1, 0, 1], "waits": [0, 1, 1, 2, 5, 3, 1, 1], "attempts": [9, 2, 1]}
    given: dict[str, Any] = {name: times * number for name, number in counters.items()}
    given |= {name: [times * number for number in numbers] for name, numbers in lists.items()}
    Stat.objects.bulk_create(
        Stat(minute=minute, seconds=seconds, queue=QUEUES[place % len(QUEUES)], type=name, incarnation=process, **given)
        for process in incarnations
        for place, name in enumerate(TYPES)
    )


def _repeat(model: type[models.Model], column: str, which: str, times: int, apart: str) -> None:
    """Copy rows, each so many times, one step of time apart, whatever columns they have."""
    names = [str(field.column) for field in model._meta.concrete_fields if not field.primary_key]
    changed = {column: f"{column} - n * interval '{apart}'"}
    changed |= {name: f"greatest(0, round({name} * {WAVES}))" for name in ("done", "retried", "dead")}
    given = ", ".join(changed.get(name, name) for name in names)
    table = model._meta.db_table
    _run(
        f"INSERT INTO {table} ({', '.join(names)}) SELECT {given} FROM {table}, generate_series(1, {times - 1}) n WHERE {which}"
    )


def others(sizes: Sizes) -> None:
    Pause.objects.create(kind="queue", name="newsletter", by="ada", why="the provider is down")
    Pause.objects.create(kind="type", name=TYPES[0], by="ada", until=Now() + timedelta(days=1))
    for number in range(40):
        # Once a year, so that none is due while the pages are measured.
        given = {"args": [number], "kwargs": {}}
        Schedule(name=f"nightly {number:02}", type=nothing.name, payload=given, expression="30 2 29 2 *").save()
    # Cancelled half-way, by somebody who asked for slowness.
    BulkAct.objects.create(
        token=UUID(int=1), act="requeue", sought={"state": "dead-letters", "error": "SMTPServerDisconnected"}, by="ada",
        why="the mail server was down", per_minute=6000, counted=sizes.dead // 5, start=0, upto=sizes.finished,
        after=sizes.finished // 2, done=sizes.dead // 10 - 1, refused=1, state=BulkAct.State.CANCELLED, finished_at=Now(),
        refusals=[[sizes.step, "Another job has its key 'order:20' by now."]],
    )  # fmt: skip
    Effect.objects.create(kind="outside", key="charge:0", job_id=sizes.step)
    _run(
        "INSERT INTO django_jobs_effect (kind, key, job_id, asked_at, answered_at, result) "
        "SELECT CASE n % 3 WHEN 0 THEN 'once' ELSE 'outside' END, 'charge:' || n, n, "
        "statement_timestamp() - n * interval '1 s', CASE WHEN n % 100 > 0 THEN statement_timestamp() END, '{\"id\": \"ch_1\"}' "
        f"FROM generate_series(1, {sizes.finished // 50}) n"
    )
