from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.urls import path
from django.views.static import serve

from example_project.shop import views

urlpatterns = [
    path("", views.home, name="home"),
    path("enqueue/<str:what>/", views.enqueue, name="enqueue"),
    path("jobs/<int:job_id>/", views.job, name="job"),
    path("jobs/<int:job_id>/state/", views.job_state, name="job-state"),
    # For the demo, whose files are its own labels. A site leaves files to its web server.
    path("media/<path:path>", serve, {"document_root": settings.MEDIA_ROOT}),
    path("admin/", admin.site.urls),
]
