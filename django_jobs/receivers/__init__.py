"""Calling what the project has for signals and alerts, so that it does no harm to who calls."""
