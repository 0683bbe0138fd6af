from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_jobs import Backoff
from django_jobs.conf import MOST_WORKERS, BadSetting, Conf, conf, problems
from django_jobs.workers.seats import SEATS

pytestmark = pytest.mark.fast


def test_without_settings_the_documented_defaults_hold(settings: Any) -> None:
    settings.DJANGO_JOBS = {}
    assert conf() == Conf(
        queues=None,
        processes=1,
        threads=4,
        lease=30.0,
        heartbeat=10.0,
        poll_interval=1.0,
        listen=True,
        listen_dsn=None,
        shutdown_grace=25.0,
        drain=60.0,
        max_jobs_per_process=None,
        max_process_memory=None,
        enqueue_timeout=5.0,
        backoff=Backoff(base=2, factor=3, cap=300),
        max_attempts=8,
        default_timeout=900.0,
        max_uncounted=10,
        max_payload_bytes=1024 * 1024,
        max_result_bytes=1024 * 1024,
    )


def test_a_project_need_not_have_the_setting(settings: Any) -> None:
    del settings.DJANGO_JOBS
    assert conf() == Conf()


def test_given_values_are_taken_and_durations_may_be_timedeltas(settings: Any) -> None:
    settings.DJANGO_JOBS = {
        "QUEUES": ["mail", "default"],
        "THREADS": 8,
        "LEASE": timedelta(minutes=1),
        "HEARTBEAT": 20,
        "POLL_INTERVAL": 0.5,
        "LISTEN": False,
        "LISTEN_DSN": "postgresql://me@db:5432/shop",
        "BACKOFF": (1, 2, 60),
        "ENQUEUE_TIMEOUT": timedelta(milliseconds=1),
        "DEAD_LETTER_ALERT": 100,
        "QUEUE_AGE_ALERT": timedelta(minutes=5),
        "ALERT_WEBHOOK": "https://chat.example/hook",
        "REDACT": ["PIN"],
    }
    assert conf() == Conf(
        queues=("mail", "default"),
        threads=8,
        lease=60.0,
        heartbeat=20.0,
        poll_interval=0.5,
        listen=False,
        listen_dsn="postgresql://me@db:5432/shop",
        backoff=Backoff(base=1, factor=2, cap=60),
        enqueue_timeout=0.001,
        dead_letter_alert=100,
        queue_age_alert=300.0,
        alert_webhook="https://chat.example/hook",
        redact=("pin",),
    )


def test_a_changed_setting_is_in_force_at_once_and_until_it_is_changed_back() -> None:
    with override_settings(DJANGO_JOBS={"THREADS": 77}):
        assert conf() == Conf(threads=77)
        with override_settings(DJANGO_JOBS={"THREADS": 78}):
            assert conf() == Conf(threads=78)
        assert conf() == Conf(threads=77)
    assert conf() == Conf()


def test_another_setting_does_not_make_the_settings_be_read_again() -> None:
    before = conf()
    with override_settings(DEBUG=True):
        assert conf() is before


def test_settings_that_cannot_be_used_raise_when_read_with_every_fault(settings: Any) -> None:
    settings.DJANGO_JOBS = {"THREADS": 0, "lease": 30}
    with pytest.raises(BadSetting) as caught:
        conf()
    known = (
        "ALERT_WEBHOOK, ARCHIVE_FOR, AROUND, ATOMIC_IDLE, BACKOFF, DATABASE, DEAD_LETTER_ALERT, DEAD_RETENTION, "
        "DEFAULT_TIMEOUT, DEPLOYMENT, DRAIN, EFFECT_WINDOW, ENQUEUE_TIMEOUT, "
        "HEARTBEAT, IDEMPOTENCY_WINDOW, KEEP_DONE, LEASE, LISTEN, LISTEN_DSN, MAX_ATTEMPTS, MAX_JOBS_PER_PROCESS, "
        "MAX_PAYLOAD_BYTES, MAX_PROCESS_MEMORY, MAX_RESULT_BYTES, MAX_UNCOUNTED, MISSED_GRACE, OLDEST_SHARE, "
        "POLL_INTERVAL, PROCESSES, QUEUES, QUEUE_AGE_ALERT, REDACT, SHUTDOWN_GRACE, SOLO_MEMORY, SOLO_PROCESSES, "
        "STATS_FOR, THREADS"
    )
    assert str(caught.value) == (
        "DJANGO_JOBS['THREADS'] is 0; give a whole number from 1 to 1,000. "
        f"DJANGO_JOBS has an unknown key 'lease'; known are {known}."
    )


@pytest.mark.parametrize("given", [None, [], "LEASE", 5, ["LEASE"]])
def test_a_setting_that_is_no_dict_is_named(given: object) -> None:
    assert problems(given) == [f"DJANGO_JOBS is {given!r}; it must be a dict of settings."]


@pytest.mark.parametrize("key", [0, None, "", "LEASES", "threads", ("LEASE",)])
def test_an_unknown_key_is_named_with_the_known_ones(key: object) -> None:
    (found,) = problems({key: 1})
    assert found.startswith(f"DJANGO_JOBS has an unknown key {key!r}; known are ALERT_WEBHOOK, ARCHIVE_FOR, ")
    assert found.endswith(" THREADS.")


DURATIONS = ["LEASE", "HEARTBEAT", "POLL_INTERVAL", "SHUTDOWN_GRACE", "ENQUEUE_TIMEOUT", "DEFAULT_TIMEOUT", "DRAIN"]
WHOLES = {
    "PROCESSES": 1000,
    "THREADS": 1000,
    "MAX_ATTEMPTS": 1_000_000,
    "MAX_PAYLOAD_BYTES": 2**31 - 1,
    "MAX_RESULT_BYTES": 2**31 - 1,
}


@pytest.mark.parametrize("key", DURATIONS)
@pytest.mark.parametrize(
    "value",
    [
        "30",
        None,
        True,
        0,
        -1,
        float("nan"),
        float("inf"),
        10**400,
        timedelta(0),
        timedelta(seconds=-1),
        timedelta.max,
        [],
    ],
)
def test_a_bad_duration_is_named_with_the_remedy(key: str, value: object) -> None:
    (found,) = problems({key: value})
    assert found.startswith(f"DJANGO_JOBS[{key!r}] is {repr(value)[:70]}")
    assert found.endswith("; give seconds from 0.001 to ten years, or a timedelta.")


@pytest.mark.parametrize("value", ["4", None, True, 0, 1, -1, 4.0, float("nan"), 2**31])
def test_losses_that_would_end_what_was_beside_a_killer_are_refused(value: object) -> None:
    (found,) = problems({"MAX_UNCOUNTED": value})
    assert found.startswith("DJANGO_JOBS['MAX_UNCOUNTED'] is ")
    assert found.endswith("; give a whole number from 2 to 2,147,483,647.")
    assert problems({"MAX_UNCOUNTED": 2}) == []


@pytest.mark.parametrize("value", ["4", True, 0, -1, 4.0, float("nan"), 2**31])
def test_a_bad_number_of_jobs_is_named_with_the_remedy(value: object) -> None:
    (found,) = problems({"MAX_JOBS_PER_PROCESS": value})
    assert found.startswith("DJANGO_JOBS['MAX_JOBS_PER_PROCESS'] is ")
    assert found.endswith("; give a whole number from 1 to 2,147,483,647.")


@pytest.mark.parametrize("value", ["1 GiB", True, 0, -1, 512, 16 * 1024 * 1024 - 1, 5e8, float("nan"), 2**61])
def test_memory_that_cannot_be_meant_is_named_with_the_remedy(value: object) -> None:
    (found,) = problems({"MAX_PROCESS_MEMORY": value})
    assert found.startswith("DJANGO_JOBS['MAX_PROCESS_MEMORY'] is ")
    assert "; give whole bytes from 16,777,216 (16 MiB) to " in found
    assert problems({"MAX_PROCESS_MEMORY": 16 * 1024 * 1024, "MAX_JOBS_PER_PROCESS": 1}) == []
    assert problems({"MAX_PROCESS_MEMORY": None, "MAX_JOBS_PER_PROCESS": None}) == []


@pytest.mark.parametrize("key", WHOLES)
@pytest.mark.parametrize(
    "value", ["4", None, True, 0, -1, 4.0, float("nan"), 2**31, pytest.param(10**5000, id="digits")]
)
def test_a_bad_number_is_named_with_the_remedy(key: str, value: object) -> None:
    (found,) = problems({key: value})
    assert found.startswith(f"DJANGO_JOBS[{key!r}] is ")
    assert found.endswith(f"; give a whole number from 1 to {WHOLES[key]:,}.")


@pytest.mark.parametrize("key", WHOLES)
def test_a_number_is_taken_up_to_its_most_and_no_further(key: str) -> None:
    assert problems({key: WHOLES[key]}) == []
    assert problems({key: WHOLES[key] + 1}) == [
        f"DJANGO_JOBS[{key!r}] is {WHOLES[key] + 1}; give a whole number from 1 to {WHOLES[key]:,}."
    ]


def test_a_worker_has_a_seat_for_each_thread_that_the_settings_allow() -> None:
    assert MOST_WORKERS <= SEATS


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        ("mail", "give a list of queue names, or None for all"),
        ([], "give a list of queue names, or None for all"),
        ({"mail"}, "give a list of queue names, or None for all"),
        (["mail", ""], "the queue name '' is not a non-empty text"),
        (["mail", 5], "the queue name 5 is not a non-empty text"),
        (["a,b"], "the queue name 'a,b' has a comma, a space or a control character; leave it out"),
        (["a b"], "the queue name 'a b' has a comma, a space or a control character; leave it out"),
    ],
)
def test_a_bad_list_of_queues_is_named_with_the_remedy(value: object, remedy: str) -> None:
    assert problems({"QUEUES": value}) == [f"DJANGO_JOBS['QUEUES'] is {value!r}; {remedy}."]


@pytest.mark.parametrize(
    ("value", "remedy"),
    [
        (5, "give a Backoff, or its three numbers: base, factor, cap"),
        ("123", "give a Backoff, or its three numbers: base, factor, cap"),
        ((1, 2), "give a Backoff, or its three numbers: base, factor, cap"),
        ((1, 0, 60), "Backoff(factor=0): give a number from 1 to 315,360,000"),
    ],
)
def test_a_bad_backoff_is_named_with_the_remedy(value: object, remedy: str) -> None:
    assert problems({"BACKOFF": value}) == [f"DJANGO_JOBS['BACKOFF'] is {value!r}; {remedy}."]


@pytest.mark.parametrize("value", [None, 1, 0, "yes"])
def test_whether_to_listen_is_said_by_true_or_false(value: object) -> None:
    assert problems({"LISTEN": value}) == [f"DJANGO_JOBS['LISTEN'] is {value!r}; give True or False."]


@pytest.mark.parametrize("value", ["", " ", 7, b"host=db", "secret", "postgresql://me:secret@[db/x", "host=db secret"])
def test_a_connection_string_that_cannot_be_used_is_named_without_being_shown(value: object) -> None:
    (fault,) = problems({"LISTEN_DSN": value})
    assert fault.startswith("DJANGO_JOBS['LISTEN_DSN'] cannot be used; give a connection string, as in postgresql://")
    assert "secret" not in fault


def test_a_connection_string_is_not_shown_with_the_settings() -> None:
    assert "hidden" not in repr(Conf(listen_dsn="postgresql://me:hidden@db/x", alert_webhook="https://x/hidden"))


@pytest.mark.parametrize("given", [{"HEARTBEAT": 11}, {"LEASE": 29}, {"LEASE": 9, "HEARTBEAT": 3.01}])
def test_a_heartbeat_over_a_third_of_the_lease_is_refused(given: dict[str, Any]) -> None:
    (found,) = problems(given)
    assert found == (
        f"DJANGO_JOBS has HEARTBEAT {given.get('HEARTBEAT', 10)} s and LEASE {given.get('LEASE', 30)} s; "
        "HEARTBEAT may be at most a third of LEASE, so that a lease survives two lost heartbeats."
    )


@pytest.mark.parametrize("given", [{"LEASE": 1, "HEARTBEAT": 1 / 3}, {"LEASE": 0.3, "HEARTBEAT": 0.1}, {"LEASE": 90}])
def test_a_heartbeat_of_a_third_of_the_lease_is_allowed(given: dict[str, Any]) -> None:
    assert problems(given) == []


@pytest.mark.parametrize("none", [0, 0.0, timedelta(0)])
def test_an_archive_for_no_time_is_no_archive(settings: Any, none: object) -> None:
    settings.DJANGO_JOBS = {"ARCHIVE_FOR": none}
    assert conf().archive_for == 0.0


def test_pairs_that_just_fit_are_taken(settings: Any) -> None:
    settings.DJANGO_JOBS = {"KEEP_DONE": 30, "DEAD_RETENTION": 30, "IDEMPOTENCY_WINDOW": 30, "LEASE": 30}
    assert (conf().keep_done, conf().dead_retention, conf().idempotency_window) == (30.0, 30.0, 30.0)
