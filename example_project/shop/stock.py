"""What the jobs write to the shop's tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from example_project.shop.models import Product, Vendor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from example_project.shop.catalogue import VendorEntry
    from example_project.shop.pricelist import Price


def article(product: Product) -> str:
    return f"{product.vendor.code}:{product.code}"


def put_vendors(entries: Sequence[VendorEntry]) -> list[Product]:
    """Insert or update these vendors and their products; return the products."""
    with transaction.atomic():
        vendors = Vendor.objects.bulk_create(
            [Vendor(code=entry.code, name=entry.name) for entry in entries],
            update_conflicts=True,
            unique_fields=["code"],
            update_fields=["name"],
        )
        products = [
            Product(vendor=vendor, code=code, name=name)
            for vendor, entry in zip(vendors, entries, strict=True)
            for code, name in entry.products
        ]
        return Product.objects.bulk_create(
            products,
            batch_size=500,
            update_conflicts=True,
            unique_fields=["vendor", "code"],
            update_fields=["name"],
        )


def put_prices(prices: Iterable[Price]) -> list[Product]:
    """Set the prices; return the products that have one now. Articles that the shop does not sell are passed over."""
    wanted = {f"{price.vendor}:{price.product}": price.cents for price in prices}
    vendors = {name.partition(":")[0] for name in wanted}
    candidates = Product.objects.select_related("vendor").filter(vendor__code__in=vendors).order_by("pk")
    priced = [product for product in candidates if article(product) in wanted]
    for product in priced:
        product.price_cents = wanted[article(product)]
    Product.objects.bulk_update(priced, ["price_cents"], batch_size=200)
    return priced
