from __future__ import annotations

from django.urls import path

from django_jobs import views

app_name = "django_jobs"
urlpatterns = [
    path("health/", views.health, name="health"),
    path("metrics/", views.metrics, name="metrics"),
]
