"""The example project: its data, its jobs, its choice of a database, its demo, and its PostgreSQL starter."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import psycopg
import pytest
from django.core.files.base import ContentFile
from django.core.management import CommandError
from django.db import connection
from PIL import Image

from django_jobs import Context
from django_jobs.models import Effect, Job
from example_project import database, postgres, postgres_host
from example_project.shop import catalogue, ean13, jobs, labels, payments, pricelist
from example_project.shop.demo import check, tables, work
from example_project.shop.models import DemoRun, Order, Product, Receipt, Vendor
from example_project.shop.storage import AtomicFileSystemStorage
from example_project.shop.tests import BookingTests  # noqa: F401 (run here as well)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_django.fixtures import Settings

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def context() -> Any:
    return Mock(spec=Context)


@pytest.fixture
def service() -> payments.PaymentService:
    service = payments.PaymentService()
    service.lost["1-001"] = 1
    return service


@pytest.fixture
def url(service: payments.PaymentService, order: Order) -> Iterator[str]:
    with payments.served(service) as url:
        DemoRun.objects.update(payment_url=url)
        yield url


@pytest.fixture
def order(db: None) -> Order:
    product = Product.objects.create(vendor=Vendor.objects.create(code="046d", name="L"), code="c52b", name="Receiver")
    order = Order.objects.create(run=DemoRun.objects.create(), number="1-001", email="a@example.com", total_cents=990)
    order.lines.create(product=product, quantity=1, unit_cents=990)
    return order


def run_manage(*words: str, environment: dict[str, str], cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    ours = ("EXAMPLE_", "DJANGO_", "DATABASE_URL")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    command = [sys.executable, str(ROOT / "example_project" / "manage.py"), *words]
    return subprocess.run(command, cwd=cwd, env=clean | environment, capture_output=True, text=True, check=False)


def test_the_catalogue_is_read_completely_and_its_parts_are_the_whole() -> None:
    vendors = list(catalogue.read_vendors())
    counts = (len(vendors), sum(len(vendor.products) for vendor in vendors))
    assert counts == check.lines_of_catalogue(catalogue.USB_IDS) == (3427, 20528)
    parts = [vendor for part in range(5) for vendor in catalogue.read_part(part, 5)]
    assert sorted(parts, key=lambda vendor: vendor.code) == vendors


def test_a_line_that_is_no_product_is_named(tmp_path: Path) -> None:
    broken = tmp_path / "usb.ids"
    broken.write_text("046d  Logitech\n\tzzzz  Mouse\n")
    with pytest.raises(ValueError, match=r"usb\.ids, line 2: neither a vendor nor a product: '\\tzzzz  Mouse'"):
        list(catalogue.read_vendors(broken))


def test_the_broken_price_list_names_its_row() -> None:
    with pytest.raises(ValueError, match=r"prices_extra\.csv, line 63: cannot read .*12\.9O"):
        list(pricelist.read_prices(catalogue.DATA / work.BROKEN_PRICE_LIST))


def test_bar_codes_are_those_of_the_standard() -> None:
    assert ean13.with_check_digit("400638133393") == "4006381333931"
    assert ean13.bars("4006381333931") == (
        "10100011010100111010111101111010001001011001101010100001010000101000010111010010000101100110101"
    )
    with pytest.raises(ValueError, match="check digit does not fit"):
        ean13.bars("4006381333930")


def test_a_label_shows_the_bars_of_its_number(tmp_path: Path) -> None:
    number, picture = ean13.in_store_number("ffff", "ffff"), tmp_path / "label.png"
    picture.write_bytes(labels.draw(labels.Label(name="Mouse " * 40, maker="M" * 200, price="EUR 1.00", number=number)))
    with Image.open(picture) as image:
        middle = labels.BARS_TOP + labels.BARS_HEIGHT // 2
        left = (labels.WIDTH - ean13.MODULES * labels.BAR_WIDTH) // 2
        places = [left + labels.BAR_WIDTH * module + labels.BAR_WIDTH // 2 for module in range(ean13.MODULES)]
        assert "".join("1" if image.getpixel((x, middle)) == 0 else "0" for x in places) == ean13.bars(number)


def test_a_file_is_replaced_whole_and_a_failed_one_leaves_nothing(tmp_path: Path) -> None:
    storage = AtomicFileSystemStorage(location=tmp_path)
    assert [storage.save("a/b.txt", ContentFile(text)) for text in ("one", "two")] == ["a/b.txt", "a/b.txt"]

    class Broken(ContentFile):  # type: ignore[type-arg]
        def chunks(self, chunk_size: int | None = None) -> Iterator[bytes]:
            yield b"half"
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        storage.save("a/b.txt", Broken(b""))
    assert [(path.name, path.read_text()) for path in (tmp_path / "a").iterdir()] == [("b.txt", "two")]


@pytest.mark.django_db
def test_an_import_that_runs_again_changes_nothing(context: Any) -> None:
    counts = [jobs.import_catalogue(context, 3, 64) for _ in range(2)]
    expected = sum(len(vendor.products) for vendor in catalogue.read_part(3, 64))
    assert counts == [expected, expected]
    assert Product.objects.count() == expected
    assert context.progress.call_args.args[:2] == (54, 54)


@pytest.mark.django_db
def test_prices_and_labels_come_together_or_not_at_all(tmp_path: Path, settings: Settings) -> None:
    settings.MEDIA_ROOT = tmp_path
    vendor = Vendor.objects.create(code="0001", name="Fry's Electronics")
    product = Product.objects.create(vendor=vendor, code="7778", name="Counterfeit flash drive")
    assert [jobs.import_prices(1, work.PRICE_LIST) for _ in range(2)] == [1, 1]
    with pytest.raises(ValueError, match="line 63"):
        jobs.import_prices(1, work.BROKEN_PRICE_LIST)
    (label,) = Job.objects.filter(type="shop.draw_label")
    assert label.args == [1, product.pk], "the second time ordered no label"
    assert jobs.draw_label(*label.args) == "labels/run-1/2000001305843.png"
    assert len(check.sound_labels(tmp_path / "labels" / "run-1")) == 1


@pytest.mark.django_db(transaction=True)
def test_an_order_whose_answer_got_lost_is_charged_for_with_the_same_key_and_then_not_again(
    service: payments.PaymentService, url: str, order: Order
) -> None:
    with pytest.raises(OSError, match="closed connection"):
        jobs.charge_order(order.pk)
    assert [effect.key for effect in Effect.objects.may_have_happened()] == ["charge:1-001"]
    assert not Job.objects.exists()
    # The second as after a crash between the answer and the end of the job.
    numbers = [jobs.charge_order(order.pk) for _ in range(2)]
    assert numbers == ["ch_00001"] * 2
    assert service.calls == {("1-001", "charge:1-001"): 2}
    assert service.charges_of("1-001") == [{"charge": "ch_00001", "order": "1-001", "cents": 990}]
    bookings = Job.objects.values_list("type", "queue", "idempotency_key", "payload__args")
    assert list(bookings) == [("shop.book_payment", "payments", "book:1-001", [order.pk, "ch_00001"])]


@pytest.mark.django_db
def test_a_payment_is_booked_with_what_was_sold_and_the_receipt(order: Order) -> None:
    assert jobs.book_payment.job_type.atomic
    jobs.book_payment(order.pk, "ch_00001")
    order.refresh_from_db()
    assert (order.paid_at is not None, order.payment) == (True, "ch_00001")
    assert list(Product.objects.values_list("sold", flat=True)) == [1]
    assert list(Job.objects.values_list("type", "queue", "payload__args")) == [
        ("shop.send_receipt", "mail", [order.pk])
    ]
    assert jobs.charge_order(order.pk) == "ch_00001", "what is paid is not charged"


def test_a_receipt_is_mailed_once(order: Order, tmp_path: Path, settings: Settings) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
    settings.EMAIL_FILE_PATH = tmp_path
    assert [jobs.send_receipt(order.pk) for _ in range(2)] == ["sent to a@example.com"] * 2
    assert Receipt.objects.count() == 1
    assert check.mails_by_order(tmp_path) == {"1-001": 1}


@pytest.mark.django_db
def test_jobs_of_another_run_or_of_the_page_are_not_taken_for_this_ones(order: Order) -> None:
    run = work.Run(number=order.run_id, after=0)
    for key in (f"charge:{run.number}-007", f"charge:{run.number}2-007", f"book:{run.number}-007", "page:1"):
        jobs.draw_label.using(idempotency_key=key).enqueue(run.number, 1)
    for number in (run.number, run.number + 1):
        jobs.draw_label.enqueue(number, 1)
    Order.objects.update(number=f"{run.number}-001")
    for pk in (order.pk, order.pk + 1):
        jobs.send_receipt.enqueue(pk)
    found = [(job.type, job.idempotency_key or "", job.args[0]) for job in run.jobs().order_by("pk")]
    assert found == [
        ("shop.draw_label", f"charge:{run.number}-007", run.number),
        ("shop.draw_label", f"book:{run.number}-007", run.number),
        ("shop.draw_label", "", run.number),
        ("shop.send_receipt", "", order.pk),
    ]


@pytest.mark.django_db
def test_tables_of_an_earlier_version_are_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    assert tables.differences() == []
    connection.cursor().execute("ALTER TABLE shop_vendor ADD COLUMN old integer")
    assert tables.differences() == ["shop_vendor: old is not known"]
    monkeypatch.setattr(database, "chosen", database.Choice(kind="given", url=""))
    with pytest.raises(CommandError, match="Drop that database") as refusal:
        tables.prepare(print)
    assert refusal.value.returncode == 2


def test_a_database_is_chosen_and_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(database, "SQLITE_FILE", tmp_path / "a b.sqlite3")
    given = database.choose("postgresql://me:secret@db.example.com:5432/shop", "")
    assert (given.kind, given.note) == ("given", "postgresql at db.example.com/shop, by DATABASE_URL.")
    monkeypatch.setattr(postgres_host, "wheel_binaries", lambda: None)
    fallback = database.choose("", "")
    assert (fallback.kind, fallback.url) == ("sqlite", f"sqlite:///{tmp_path}/a%20b.sqlite3")
    assert "has no PostgreSQL 18" in fallback.note
    for url, forced in (("nonsense", ""), ("", "oracle"), ("", "embedded")):
        with pytest.raises(database.DatabaseError):
            database.choose(url, forced)


def test_commands_without_a_database_start_none_from_any_directory(tmp_path: Path) -> None:
    environment = {"EXAMPLE_VAR": str(tmp_path / "var")}
    done = run_manage("makemigrations", "--check", "--dry-run", cwd=tmp_path, environment=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "No changes detected\n", "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
@pytest.mark.parametrize("engine", ["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def test_the_demo_comes_out_as_expected(engine: str, tmp_path: Path) -> None:
    with postgres.temporary() if engine == "postgresql" else nullcontext() as server:
        choice = {"DATABASE_URL": server.url} if server else {"EXAMPLE_DATABASE": "sqlite"}
        done = run_manage("demo", "--once", environment={**choice, "EXAMPLE_VAR": str(tmp_path)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All came out as expected." in done.stdout
    assert re.search(r"^all +515 +514 +2 +1 ", done.stdout, re.MULTILINE)


STARTER = """
import pathlib, sys
from example_project import postgres
server = postgres.Server.start(pathlib.Path(sys.argv[1]), bindir=postgres.find_binaries(), fsync=False)
print(server.attached, server.pid, server.url, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def base() -> Iterator[Path]:
    """A directory that the user who runs the server can enter, also when we are root."""
    parent = postgres_host.temporary_parent(postgres_host.account_for(Path("/nonexistent")))
    with tempfile.TemporaryDirectory(dir=parent) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@contextmanager
def starter(directory: Path) -> Iterator[tuple[subprocess.Popen[str], str, int, str]]:
    """Start the server in a process of its own, and end that one in order."""
    command = [sys.executable, "-c", STARTER, str(directory)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        attached, pid, url = process.stdout.readline().split()
        yield process, attached, int(pid), url


def answers(url: str) -> bool:
    with psycopg.connect(url) as session:
        return session.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.postgresql
@pytest.mark.skipif(postgres.find_binaries() is None, reason="neither an installed PostgreSQL nor the wheel")
class TestServer:
    def test_a_temporary_one_is_back_on_its_port_after_any_end_and_leaves_nothing(self) -> None:
        with postgres.temporary(settings={"max_connections": "20"}) as server:
            url = server.url
            os.kill(server.pid, signal.SIGKILL)
            server.restart()
            assert answers(url)
            server.restart("immediate")
            assert answers(url)
        assert not server.directory.parent.exists()

    def test_a_second_process_attaches_and_does_not_stop_it(self, base: Path) -> None:
        with starter(base / "data") as (_first, first_attached, pid, url):
            with starter(base / "data") as (_second, second_attached, second_pid, second_url):
                assert (first_attached, second_attached) == ("False", "True")
                assert (second_pid, second_url) == (pid, url)
            assert answers(url)

    @pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child that its parent was killed")
    def test_one_whose_starter_is_killed_ends_and_the_next_start_works(self, base: Path) -> None:
        with starter(base / "data") as (process, _attached, pid, _url):
            end = os.pidfd_open(pid)
            process.kill()
            assert select.select([end], [], [], 20)[0]
            os.close(end)
        # The number in the file left behind may be that of a living process by now.
        (base / "data" / "postmaster.pid").write_text(f"{os.getpid()}\n{base}/data\n0\n5432\n\n\n\nready\n")
        with starter(base / "data") as (_process, attached, _pid, url):
            assert attached == "False"
            assert answers(url)

    def test_a_failed_start_shows_why(self) -> None:
        with pytest.raises(postgres.PostgresError, match=r'(?s)did not start.*invalid value.*"shared_buffers"'):
            postgres.temporary(settings={"shared_buffers": "plenty"})
