from __future__ import annotations

from django.contrib import admin

from example_project.shop.models import Order, OrderLine, Product, Receipt, Takings, Vendor


@admin.register(Vendor)
class VendorAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["code", "name"]
    search_fields = ["code", "name"]


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["code", "name", "vendor", "price_cents", "sold"]
    list_select_related = ["vendor"]
    search_fields = ["code", "name"]
    raw_id_fields = ["vendor"]


class OrderLineInline(admin.TabularInline):  # type: ignore[type-arg]
    model = OrderLine
    raw_id_fields = ["product"]
    extra = 0


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["number", "email", "total_cents", "placed_at", "paid_at", "payment"]
    list_filter = ["run"]
    search_fields = ["number", "email"]
    inlines = [OrderLineInline]


@admin.register(Receipt)
class ReceiptAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["order", "mailed_at"]
    raw_id_fields = ["order"]


@admin.register(Takings)
class TakingsAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = ["day", "orders", "cents"]
    ordering = ["-day"]
