"""What a visitor of the shop's page can have done. Each form enqueues one job, once."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from django import forms
from django.db import transaction
from django.db.models import Count

from example_project.shop.jobs import (
    LABELS_AT_MOST,
    LABELS_PER_SECOND,
    charge_order,
    draw_label,
    draw_vendor,
    import_prices,
)
from example_project.shop.models import DemoRun, Order, Product, Vendor

if TYPE_CHECKING:
    from django_jobs.models import Job


class OnceForm(forms.Form):
    """The page comes with a number of its own: however often its form is sent, there is one job."""

    title = ""
    says = ""
    button = ""
    number = forms.UUIDField(initial=uuid4, widget=forms.HiddenInput)

    @property
    def key(self) -> str:
        return f"page:{self.cleaned_data['number']}"

    def enqueue(self, run: DemoRun) -> Job:
        raise NotImplementedError


class LabelForm(OnceForm):
    title = "Draw a label"
    says = "With the product's name, its price and a bar code."
    button = "Draw it"
    product = forms.ModelChoiceField(
        Product.objects.filter(price_cents__isnull=False).order_by("name"), empty_label=None
    )

    def enqueue(self, run: DemoRun) -> Job:
        product: Product = self.cleaned_data["product"]
        return draw_label.using(idempotency_key=self.key).enqueue(run.pk, product.pk)


class OrderForm(OnceForm):
    title = "Order something"
    says = "The payment service charges it; a second job mails the receipt."
    button = "Order it"
    product = forms.ModelChoiceField(
        Product.objects.filter(price_cents__isnull=False).order_by("name"), empty_label=None
    )
    quantity = forms.IntegerField(min_value=1, max_value=20, initial=1)

    def enqueue(self, run: DemoRun) -> Job:
        """Place the order and enqueue its charge: both are there, or neither."""
        number = f"web-{self.cleaned_data['number'].hex[:16]}"
        with transaction.atomic():
            order, new = Order.objects.get_or_create(number=number, defaults=self._order(run))
            if new:
                product, quantity = self.cleaned_data["product"], self.cleaned_data["quantity"]
                order.lines.create(product=product, quantity=quantity, unit_cents=product.price_cents)
            return charge_order.using(idempotency_key=self.key).enqueue(order.pk)

    def _order(self, run: DemoRun) -> dict[str, object]:
        cents = self.cleaned_data["product"].price_cents * self.cleaned_data["quantity"]
        return {"run": run, "email": "visitor@example.com", "total_cents": cents}


class VendorForm(OnceForm):
    title = "Draw a vendor's labels"
    says = (
        f"The first {LABELS_AT_MOST}, {LABELS_PER_SECOND:g} a second, as fast as the printer takes them: watch the progress for "
        f"{LABELS_AT_MOST / LABELS_PER_SECOND:g} seconds, or cancel the job in the admin; it hears of that within ten."
    )
    button = "Draw them"
    vendor = forms.ModelChoiceField(
        Vendor.objects.annotate(sells=Count("products")).filter(sells__gte=LABELS_AT_MOST).order_by("name"),
        empty_label=None,
    )

    def enqueue(self, run: DemoRun) -> Job:
        return draw_vendor.using(idempotency_key=self.key).enqueue(run.pk, self.cleaned_data["vendor"].pk)


class BrokenForm(OnceForm):
    title = "Take over a broken price list"
    says = "Line 63 cannot be read: three attempts, then it is a dead letter."
    button = "Try it"

    def enqueue(self, run: DemoRun) -> Job:
        return import_prices.using(idempotency_key=self.key).enqueue(run.pk, "prices_extra.csv")


FORMS: dict[str, type[OnceForm]] = {
    "label": LabelForm,
    "order": OrderForm,
    "vendor": VendorForm,
    "broken": BrokenForm,
}
