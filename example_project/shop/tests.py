"""What the shop's jobs do, tried with the test kit: docs/testing.md."""

from __future__ import annotations

from datetime import timedelta

from django.core import mail
from django.test import TestCase

from django_jobs.testing import assert_enqueued, assert_takes_effect_once, database_away, run_jobs
from example_project.shop.jobs import book_payment, send_receipt
from example_project.shop.models import DemoRun, Order, Product, Vendor


class BookingTests(TestCase):
    product: Product
    order: Order

    @classmethod
    def setUpTestData(cls) -> None:
        cls.product = Product.objects.create(vendor=Vendor.objects.create(code="046d", name="L"), code="c52b", name="R")
        cls.order = Order.objects.create(
            run=DemoRun.objects.create(payment_url="http://localhost:1"),
            number="1-001",
            email="ada@example.com",
            total_cents=990,
        )
        cls.order.lines.create(product=cls.product, quantity=2, unit_cents=495)

    def test_a_payment_is_booked_once_and_its_receipt_sent(self) -> None:
        assert_takes_effect_once(book_payment.enqueue(self.order.pk, "ch_1"))
        assert_enqueued(send_receipt, args=[self.order.pk], times=1)
        run_jobs()
        self.product.refresh_from_db()
        assert (self.product.sold, [message.to for message in mail.outbox]) == (2, [["ada@example.com"]])

    def test_a_receipt_of_which_nobody_knows_whether_it_was_sent_is_sent_once(self) -> None:
        job = send_receipt.enqueue(self.order.pk)
        with database_away(send_receipt):
            run_jobs(ahead=timedelta(minutes=1))
        assert (job.refresh().status, job.token, len(mail.outbox)) == ("done", 2, 1)
