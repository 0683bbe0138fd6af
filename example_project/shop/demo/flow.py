"""One run of the demo from its tables to its verdict."""

from __future__ import annotations

import fcntl
import signal
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from django.core.management import CommandError

from example_project.database import VAR
from example_project.shop.demo import check, report, screen, tables, web, work
from example_project.shop.demo.workers import Workers
from example_project.shop.payments import PaymentService, served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from example_project.shop.demo.work import Run

LOOK_EVERY = 0.25
STOPPED = (
    "\nStopped. The tables stay, with the jobs and orders of this run; the next run takes a new number, and removes the labels "
    "and mails of earlier ones."
)


class Stopped(KeyboardInterrupt):
    """A signal asked us to stop; treated like Ctrl-C."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def play(*, once: bool, within: float, port: int | None, say: Callable[[str], None]) -> int:
    """Run the demo and return its exit code: 0 when everything came out as it should."""
    service = PaymentService()
    with _signals_raise(), _alone(), served(service) as url, nullcontext() if once else web.opened(port) as server:
        tables.prepare(say)
        run = work.Run.begin(url)
        service.lost[run.unlucky_order] = check.LOST_ANSWERS
        say(f"Run {run.number}: a shop takes over its catalogue, draws labels, and charges {work.ORDERS} orders.")
        with Workers() as workers:
            ended = _work_through(run, workers, within)
            if server is None or not ended:
                return _judge(run, service, workers.stop(), ended, say)
            code = _judge(run, service, 0, ended, say)
            if code == 0:
                _stay_open(server, workers, say)
            return code


def _stay_open(server: web.Server, workers: Workers, say: Callable[[str], None]) -> None:
    """Serve the shop's page and the admin until a signal comes or the workers end."""
    password = web.make_admin()
    with server.serving():
        say(f"\nThe shop:   {server.url}/  (enqueue jobs there, and watch them)")
        say(f"The admin:  {server.url}/admin/  user {web.USER}, password {password}")
        say("Three schedules are under Schedules there: the day's takings, the week's mail, and tidying up.")
        say("The workers go on. Ctrl-C ends them and this demo.")
        try:
            while True:
                workers.wait(None)
        except Stopped:
            raise
        except KeyboardInterrupt:  # the end that was just offered
            say(STOPPED)


def _work_through(run: Run, workers: Workers, within: float) -> bool:
    """Enqueue the work, each part when what it needs is there; return whether all of it ended in time."""
    deadline = time.monotonic() + within
    steps: list[tuple[Callable[[Run], None], str]] = [
        (work.bring_in_catalogue, "shop.import_catalogue"),
        (work.bring_in_prices, "shop.import_prices"),
        (work.place_orders, ""),
    ]
    with screen.opened() as view:
        for enqueue, waits_for in steps:
            enqueue(run)
            while run.unfinished(waits_for).exists():
                if time.monotonic() > deadline:
                    return False
                view.show(run)
                workers.wait(LOOK_EVERY)
        view.show(run)
    return True


def _judge(run: Run, service: PaymentService, workers_exit: int, ended: bool, say: Callable[[str], None]) -> int:
    findings = check.findings(run, service, workers_exit)
    say(f"\n{report.table(run)}\n\n{report.verdict(findings)}\n\n{report.payment_line(service)}")
    if failures := report.failures(run):
        say(f"Jobs that met an error:\n{failures}")
    if not ended:
        say(f"The time was over. Jobs that have not ended:\n{report.leftovers(run) or '  none by now'}")
    say(f"\n{report.places(run)}")
    wrong = sum(not finding.good for finding in findings)
    say(f"\n{wrong} findings differ from what was expected." if wrong else "\nAll came out as expected.")
    return 1 if wrong else 0


@contextmanager
def _alone() -> Iterator[None]:
    """Refuse a second demo: each counts the charges at a payment service of its own."""
    try:
        VAR.mkdir(parents=True, exist_ok=True)
        file = (VAR / "demo.lock").open("a")
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandError("Another demo runs. End it (Ctrl-C), then start this one.", returncode=2) from None
    except OSError as error:
        raise CommandError(f"The demo writes files to {VAR}, and cannot: {error}", returncode=2) from error
    with file:
        yield


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Have TERM and HUP unwind the demo as Ctrl-C does, so that everything it started is ended."""

    def stop(number: int, _frame: object) -> None:
        raise Stopped(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
