"""What other programs ask over HTTP. Nothing here asks who they are: the project says who reaches these addresses."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from django_jobs.conf import queue_name
from django_jobs.monitoring.pulse import pulse

NOT_INSTALLED = 'The package prometheus_client is not installed: pip install "django_jobs[prometheus]"\n'


@require_safe
@never_cache
def health(request: HttpRequest) -> HttpResponse:
    """Answer 200 when the jobs are run, of ?queues=a,b or of all queues, else 503; as JSON that says why."""
    given = request.GET.get("queues")
    try:
        queues = None if given is None else [queue_name(name) for name in given.split(",")]
    except ValueError as error:
        return JsonResponse({"ok": False, "problems": [str(error)]}, status=400)
    found = pulse(queues)
    return JsonResponse(found, status=200 if found["ok"] else 503)


@require_safe
@never_cache
def metrics(request: HttpRequest) -> HttpResponse:
    """Answer what Prometheus reads."""
    try:
        from prometheus_client import CollectorRegistry
        from prometheus_client.exposition import choose_encoder

        from django_jobs.monitoring.metrics import JobsCollector
    except ImportError:
        return HttpResponse(NOT_INSTALLED, status=501, content_type="text/plain; charset=utf-8")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(JobsCollector())
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return HttpResponse(encode(registry), content_type=content_type)
