"""Take pictures of the pages for the docs: `python -m tests.browser.screenshots --out docs/pictures`.

Each page is taken in the light and in the dark theme, in a wide and in a narrow window, of a database that is filled as that
of a shop after a week. To add a page, add a line to PAGES.
"""

from __future__ import annotations

import argparse
import base64
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, make_server

from example_project.postgres import temporary

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

JOBS = "/admin/django_jobs/job/"
# By the name of the picture. `{dead}` and the like are the ids of rows there are: see benchmarks/pages/known.py.
PAGES = {
    "overview": "/admin/django_jobs/",
    "overview-7d": "/admin/django_jobs/?span=7d",
    "jobs": JOBS,
    "dead-letters": f"{JOBS}dead-letters/",
    "retries": f"{JOBS}retries/",
    "job-dead": f"{JOBS}{{dead}}/change/",
    "job-waits": f"{JOBS}{{due}}/change/",
    "job-retry": f"{JOBS}{{retry}}/change/",
    "job-edit": f"{JOBS}{{due}}/edit/",
    "job-cancel": f"{JOBS}{{due}}/cancel/",
    "search": f"{JOBS}?q=DeadlockDetected",
    "all-found": "/admin/django_jobs/bulkact/add/?act=requeue&state=dead-letters",
    "bulk-acts": "/admin/django_jobs/bulkact/",
    "bulk-act": "/admin/django_jobs/bulkact/1/change/",
    "archive": "/admin/django_jobs/archivedjob/",
    "archived-job": "/admin/django_jobs/archivedjob/{archived}/change/",
    "workers": "/admin/django_jobs/worker/",
    "worker": "/admin/django_jobs/worker/00000000000000000000000000000001/change/",
    "pauses": "/admin/django_jobs/pause/",
    "pause-add": "/admin/django_jobs/pause/add/",
    "schedules": "/admin/django_jobs/schedule/",
    "schedule": "/admin/django_jobs/schedule/{schedule}/change/",
    "effects": "/admin/django_jobs/effect/",
    "effect": "/admin/django_jobs/effect/1/change/",
}
WIDTHS = {"wide": 1280, "narrow": 480}
THEMES = ("light", "dark")
SCHEDULES = {
    "clean up carts": ("*/10 * * * *", "UTC"),
    "close the day": ("0 0 * * *", "Europe/Berlin"),
    "mail the newsletter": ("0 9 * * 1", "Europe/Berlin"),
    "nightly report": ("30 2 * * *", "Europe/Berlin"),
    "renew certificates": ("0 4 1 * *", "UTC"),
    "stock of New York": ("15 6 * * 1-5", "America/New_York"),
}
TALLEST = 1600
COLOURS = 96
LARGEST = 150_000  # bytes of a picture


class _Quiet(WSGIRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the directory for the pictures")
    parser.add_argument("--only", nargs="+", default=list(PAGES), metavar="NAME", help="only these pages")
    parser.add_argument("--widths", nargs="+", default=list(WIDTHS), choices=WIDTHS, help="only these widths")
    parser.add_argument("--themes", nargs="+", default=list(THEMES), choices=THEMES, help="only these themes")
    parser.add_argument("--language", default="en", help="the language of the pages (default: en)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with temporary() as server:
        os.environ["DATABASE_URL"] = server.url
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "benchmarks.pages.settings")
        with _filled_site() as (url, cookies, rows), _browser(options.language) as driver:
            driver.get(f"{url}/admin/login/")
            for cookie in cookies.split("; "):
                name, _, value = cookie.partition("=")
                driver.add_cookie({"name": name, "value": value})
            for name in options.only:
                _beat()
                for width in options.widths:
                    for theme in options.themes:
                        _take(
                            driver,
                            url + PAGES[name].format(**rows),
                            width,
                            theme,
                            options.out / f"{name}-{width}-{theme}.png",
                        )
    return 0


@contextmanager
def _filled_site() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Serve the pages and their static files; return where, the cookies of who is logged in, and the rows to look at."""
    import django
    from django.core.management import call_command

    django.setup()
    from django.contrib.staticfiles.handlers import StaticFilesHandler
    from django.core.wsgi import get_wsgi_application

    from benchmarks.pages.fill import Sizes, fill
    from benchmarks.pages.known import rows
    from benchmarks.pages.visits import logged_in

    call_command("migrate", verbosity=0)
    fill(Sizes(finished=20_000, hot=0.125, dead=900, waiting=2_000, processes=2))
    schedule = _schedules()
    application = StaticFilesHandler(get_wsgi_application())
    with make_server("127.0.0.1", 0, application, handler_class=_Quiet) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", logged_in(), {**rows(), "schedule": schedule}
        server.shutdown()
        thread.join()


def _schedules() -> int:
    """Have schedules as a shop has them, and a scheduler that has looked at them; return the id of one."""
    from benchmarks.jobs import nothing
    from django_jobs.engines import engine
    from django_jobs.models import Schedule
    from django_jobs.schedules.tick import tick

    Schedule.objects.all().delete()
    for name, (expression, zone) in SCHEDULES.items():
        payload = {"args": [7], "kwargs": {}}
        Schedule(name=name, type=nothing.name, payload=payload, expression=expression, timezone=zone).save()
    tick(engine(), (nothing.name,), "filled-0:4000")
    found: int = Schedule.objects.get(name="nightly report").pk
    return found


def _beat() -> None:
    """Have the workers live, which are only rows."""
    from django.db.models.functions import Now

    from django_jobs.models import Worker

    Worker.objects.update(heartbeat_at=Now())


@contextmanager
def _browser(language: str) -> Iterator[Chrome]:
    from tests.browser.conftest import started

    driver = started(f"--accept-lang={language}")
    try:
        yield driver
    finally:
        driver.quit()


def _take(driver: Chrome, url: str, width: str, theme: str, path: Path) -> None:
    call = driver.execute_cdp_cmd
    scheme = [{"name": "prefers-color-scheme", "value": theme}]
    call("Emulation.setEmulatedMedia", {"features": scheme})
    size = {"width": WIDTHS[width], "height": 900, "deviceScaleFactor": 1, "mobile": False}
    call("Emulation.setDeviceMetricsOverride", size)
    driver.get(url)
    height = min(driver.execute_script("return document.documentElement.scrollHeight"), TALLEST)
    call("Emulation.setDeviceMetricsOverride", {**size, "height": height})
    taken = call("Page.captureScreenshot", {"format": "png"})
    path.write_bytes(_small(base64.b64decode(taken["data"])))
    print(f"{path.name}: {path.stat().st_size:,} bytes", flush=True)


def _small(png: bytes) -> bytes:
    from PIL import Image

    picture = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    out = io.BytesIO()
    picture.save(out, "PNG", optimize=True)
    assert out.tell() < LARGEST, f"{out.tell():,} bytes: take fewer COLOURS, or less of the page"
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
