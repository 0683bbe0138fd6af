"""What a visitor of the shop's page can have done. Each form enqueues one job, once."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from django import forms
from django.db import transaction

from example_project.shop.jobs import charge_order, draw_label, import_catalogue, import_prices
from example_project.shop.models import DemoRun, Order, Product

if TYPE_CHECKING:
    from django_jobs.models import Job

PARTS = 4


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


class CatalogueForm(OnceForm):
    title = "Take over the catalogue"
    says = f"A part of it, {20_528 // PARTS:,} products or so: watch its progress."
    button = "Take it over"
    part = forms.IntegerField(min_value=1, max_value=PARTS, initial=1, label=f"Part (of {PARTS})")

    def enqueue(self, run: DemoRun) -> Job:
        return import_catalogue.using(idempotency_key=self.key).enqueue(self.cleaned_data["part"] - 1, PARTS)


class BrokenForm(OnceForm):
    title = "Take over a broken price list"
    says = "Line 63 cannot be read: three attempts, then it is a dead letter."
    button = "Try it"

    def enqueue(self, run: DemoRun) -> Job:
        return import_prices.using(idempotency_key=self.key).enqueue(run.pk, "prices_extra.csv")


FORMS: dict[str, type[OnceForm]] = {
    "label": LabelForm,
    "order": OrderForm,
    "catalogue": CatalogueForm,
    "broken": BrokenForm,
}
