"""Settings of a project whose admin is django-unfold's."""

from tests.settings import *  # noqa: F403
from tests.settings import INSTALLED_APPS as OURS

INSTALLED_APPS = ["unfold", *OURS]
