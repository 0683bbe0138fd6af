"""Texts that are said in another language later, by other means: copied, pickled, and as Django takes them."""

from __future__ import annotations

import copy
import pickle

import pytest
from django.utils import translation

from django_jobs.texts import Text, foreign, lazily, text

pytestmark = pytest.mark.fast


def language() -> Text:
    return foreign(lambda: str(translation.get_language()))


def test_what_others_say_may_be_pickled_and_is_english_then() -> None:
    found = pickle.loads(pickle.dumps(language()))
    assert (found, found.translated(), type(found)) == ("en", "en", Text)


def test_a_copy_of_what_others_say_is_said_in_the_readers_language() -> None:
    for found in (copy.copy(language()), copy.deepcopy(language())):
        with translation.override("de"):
            assert (found, found.translated()) == ("en", "de")


def test_texts_as_django_takes_them_are_of_one_class_and_said_when_they_are_shown() -> None:
    first, second = lazily(text("%s days", 3)), lazily(language())
    assert type(first) is type(second)
    with translation.override("de"):
        assert [str(first), str(pickle.loads(pickle.dumps(first))), str(second)] == ["3 d", "3 d", "de"]
