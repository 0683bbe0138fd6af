"""A view that writes a row and enqueues a job for it, and whose request may fail afterwards."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

from tests import router
from tests.app.jobs import nothing
from tests.app.models import Effect
from tests.enqueues import take


class Failed(Exception):
    pass


def order(request: HttpRequest, number: int) -> HttpResponse:
    Effect.objects.using(router.jobs_alias).create(key="order", run=number)
    nothing.using(idempotency_key=f"order:{number}").enqueue(number)
    take.enqueue_many([take.call(number)])
    if number % 3 == 0:
        raise Failed
    return HttpResponse("stored")


urlpatterns = [path("order/<int:number>", order)]
