from __future__ import annotations

from django.db import models
from django.db.models.functions import Now


class Vendor(models.Model):
    code = models.CharField(max_length=4, unique=True)
    name = models.CharField(max_length=255)

    def __str__(self) -> str:
        return self.name


class Product(models.Model):
    vendor = models.ForeignKey(Vendor, on_delete=models.CASCADE, related_name="products")
    code = models.CharField(max_length=4)
    name = models.CharField(max_length=255)
    price_cents = models.PositiveIntegerField(null=True, blank=True)
    sold = models.PositiveIntegerField(default=0, help_text="Pieces in orders that were paid.")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["vendor", "code"], name="shop_product_article")]

    def __str__(self) -> str:
        return self.name


class DemoRun(models.Model):
    """One run of `manage.py demo`: its number is in the keys of the run's jobs and in its orders."""

    started_at = models.DateTimeField(db_default=Now())
    payment_url = models.URLField(help_text="Where the newest run's payment service listens: orders are charged there.")

    def __str__(self) -> str:
        return f"run {self.pk}"


class Order(models.Model):
    run = models.ForeignKey(DemoRun, on_delete=models.CASCADE, related_name="orders")
    number = models.CharField(max_length=20, unique=True)
    email = models.EmailField()
    total_cents = models.PositiveIntegerField()
    placed_at = models.DateTimeField(db_default=Now())
    paid_at = models.DateTimeField(null=True, blank=True)
    payment = models.CharField(max_length=64, blank=True, help_text="The payment service's number of the charge.")

    def __str__(self) -> str:
        return self.number


class OrderLine(models.Model):
    order = models.ForeignKey(Order, on_delete=models.CASCADE, related_name="lines")
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    quantity = models.PositiveSmallIntegerField()
    unit_cents = models.PositiveIntegerField()

    def __str__(self) -> str:
        return f"{self.quantity} x {self.product}"


class Takings(models.Model):
    """What was paid on one day of the shop's calendar."""

    day = models.DateField(unique=True)
    orders = models.PositiveIntegerField()
    cents = models.PositiveBigIntegerField()

    class Meta:
        verbose_name_plural = "takings"

    def __str__(self) -> str:
        return f"{self.day}: EUR {self.cents / 100:.2f}"


class Receipt(models.Model):
    """A receipt that was mailed."""

    order = models.OneToOneField(Order, on_delete=models.CASCADE)
    mailed_at = models.DateTimeField(db_default=Now())

    def __str__(self) -> str:
        return f"receipt for {self.order}"
