"""What OpenTelemetry is told of jobs, where its API is installed and a provider is set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from django_jobs import Snooze, tracing
from django_jobs.exceptions import IdempotencyConflict
from django_jobs.models import Job
from django_jobs.workers.runner import Runner
from tests.app.jobs import nothing
from tests.engines.common import alter, beside_others, claim
from tests.processes.parts import SETTINGS
from tests.processes.test_runner import raises, run

if TYPE_CHECKING:
    from django_jobs.engines.base import Engine
    from django_jobs.engines.values import Claimed

sdk = pytest.importorskip("opentelemetry.sdk.trace")
pytestmark = beside_others


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return where finished spans are kept, and have them be asked for."""
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    monkeypatch.setattr("opentelemetry.trace.get_tracer_provider", lambda: provider)
    monkeypatch.setattr(tracing, "_tracer", lambda: provider.get_tracer("django_jobs"))
    kept.provider = provider  # type: ignore[attr-defined, unused-ignore]
    yield kept
    provider.shutdown()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what reads the metrics."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    tracing._instruments.cache_clear()
    yield reader
    tracing._instruments.cache_clear()


def meta(engine: Engine, job: Job) -> Any:
    return Job.objects.using(engine.alias).get(pk=job.pk).meta


def call(engine: Engine, claimed: Claimed) -> None:
    Runner(engine, SETTINGS, "host:1").run(claimed, None)  # type: ignore[arg-type]


def test_without_a_provider_a_job_carries_nothing(engine: Engine) -> None:
    assert not tracing.is_on()
    assert meta(engine, nothing.enqueue()) == {}
    (claimed,) = claim(engine)
    assert claimed.trace is None


def test_without_the_api_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("opentelemetry")]:
        monkeypatch.delitem(sys.modules, name)
    assert not tracing.is_on()
    tracing.flush()
    assert "opentelemetry" not in sys.modules


def test_a_provider_that_the_environment_names_is_set() -> None:
    asks = "from django_jobs import tracing; print(tracing.is_on())"
    environment = {**os.environ, "OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"}
    told = subprocess.run([sys.executable, "-c", asks], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "True\n"


def test_the_first_run_is_part_of_the_trace_that_sent_the_job(engine: Engine, spans: Any) -> None:
    with tracing._tracer().start_as_current_span("request") as request:
        job = nothing.using(queue="mail").enqueue(1)
    (claimed,) = claim(engine)
    call(engine, claimed)
    sent, _request, ran = spans.get_finished_spans()
    assert [span.context.trace_id for span in (sent, ran)] == [request.get_span_context().trace_id] * 2
    assert (sent.parent.span_id, ran.parent.span_id) == (request.get_span_context().span_id, sent.context.span_id)
    assert [link.context.span_id for link in ran.links] == [sent.context.span_id]
    assert (sent.name, sent.kind.name, ran.name, ran.kind.name) == (
        f"enqueue {nothing.name}", "PRODUCER", f"run {nothing.name}", "CONSUMER",
    )  # fmt: skip
    common = {
        "messaging.system": "django_jobs",
        "messaging.destination.name": "mail",
        "messaging.message.id": str(job.pk),
    }
    assert common.items() <= dict(sent.attributes).items()
    assert common.items() <= dict(ran.attributes).items()
    assert [span.attributes["messaging.operation.type"] for span in (sent, ran)] == ["send", "process"]
    assert (ran.attributes["django_jobs.attempt"], ran.attributes["django_jobs.end"]) == (1, "done")
    assert ran.status.is_unset


def test_what_is_delayed_and_what_runs_again_has_a_trace_of_its_own_with_a_link(engine: Engine, spans: Any) -> None:
    nothing.enqueue(1)
    (claimed,) = claim(engine)
    call(engine, claimed._replace(token=2))
    delayed = nothing.using(delay=60).enqueue(2)
    call(engine, claimed._replace(id=delayed.pk, token=1, trace=json.dumps(meta(engine, delayed)["trace"])))
    sent, again, sent_later, late = spans.get_finished_spans()
    for first, second in ((sent, again), (sent_later, late)):
        assert second.parent is None
        assert second.context.trace_id != first.context.trace_id
        assert [link.context.trace_id for link in second.links] == [first.context.trace_id]


def test_a_run_that_fails_is_an_error_and_one_that_waits_is_none(
    engine: Engine, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(engine, monkeypatch, raises(ValueError("no good")))
    run(engine, monkeypatch, raises(Snooze(10)))
    failed, snoozed = spans.get_finished_spans()
    assert (failed.status.status_code.name, failed.attributes["error.type"]) == ("ERROR", "raised")
    assert failed.status.description.endswith("ValueError: no good\n")
    assert (snoozed.status.is_unset, snoozed.attributes["django_jobs.end"]) == (True, "snoozed")


def test_the_span_of_a_run_is_current_where_its_function_is_called(
    engine: Engine, spans: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function() -> None:
        with tracing._tracer().start_as_current_span("query"):
            pass

    run(engine, monkeypatch, function)
    query, ran = spans.get_finished_spans()
    assert query.parent.span_id == ran.context.span_id


def test_many_are_sent_in_one_span_and_each_carries_it(engine: Engine, spans: Any) -> None:
    nothing.enqueue_many([nothing.call(number) for number in range(3)])
    (sent,) = spans.get_finished_spans()
    assert sent.attributes["messaging.batch.message_count"] == 3
    for claimed in claim(engine, 3):
        call(engine, claimed)
    assert [span.parent.span_id for span in spans.get_finished_spans()[1:]] == [sent.context.span_id] * 3


def test_what_else_is_in_meta_stays(engine: Engine, spans: Any) -> None:
    job = nothing.using(idempotency_key="k", unique="waiting").enqueue(1)
    found = meta(engine, job)
    assert found["key"] == "k"
    assert set(found["trace"]) == {"traceparent"}


@pytest.mark.parametrize("trace", ["[]", '"text"', '{"traceparent": 7}', '{"traceparent": "nonsense"}', "{"])
def test_a_trace_that_cannot_be_read_is_none(engine: Engine, spans: Any, trace: str) -> None:
    nothing.enqueue(1)
    (claimed,) = claim(engine)
    call(engine, claimed._replace(trace=trace))
    ran = spans.get_finished_spans()[-1]
    assert (ran.parent, list(ran.links)) == (None, [])


def test_a_trace_in_a_row_by_hand_is_claimed_whatever_it_is(engine: Engine) -> None:
    for value in ("text", 7, None, {"traceparent": "x"}):
        alter(engine, nothing.enqueue(1).pk, meta={"trace": value})
    assert len(claim(engine, 4)) == 4


def test_metrics_count_what_is_sent_and_run_and_how_long_that_took(engine: Engine, spans: Any, measured: Any) -> None:
    nothing.using(queue="mail").enqueue(1)
    nothing.enqueue_many([nothing.call(number) for number in range(2)])
    for claimed in claim(engine, 3):
        call(engine, claimed)
    found = {
        (metric.name, point.attributes["messaging.destination.name"]): getattr(point, "value", None) or point.count
        for resource in measured.get_metrics_data().resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }
    names = ("messaging.client.sent.messages", "messaging.client.consumed.messages", "messaging.process.duration")
    counts = {(name, queue): number for name in names for queue, number in (("mail", 1), ("default", 2))}
    # Of many that are sent at once it is one operation.
    assert found == counts | {("messaging.client.operation.duration", queue): 1 for queue in ("mail", "default")}


def test_an_enqueue_that_fails_says_why_in_its_span_and_its_duration(
    engine: Engine, spans: Any, measured: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing.using(idempotency_key="k").enqueue(1)
    with pytest.raises(IdempotencyConflict):
        nothing.using(idempotency_key="k").enqueue(2)
    assert spans.get_finished_spans()[-1].attributes["error.type"] == "IdempotencyConflict"
    (scope,) = measured.get_metrics_data().resource_metrics[0].scope_metrics
    (lasted,) = (metric for metric in scope.metrics if metric.name == "messaging.client.operation.duration")
    assert {point.attributes.get("error.type") for point in lasted.data.data_points} == {None, "IdempotencyConflict"}


def test_what_was_recorded_is_sent_before_a_process_ends(spans: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def force_flush(timeout_millis: int) -> None:
        asked.append(timeout_millis)
        raise OSError("no collector")

    monkeypatch.setattr(spans.provider, "force_flush", force_flush)
    tracing.flush()
    assert asked == [2000]
