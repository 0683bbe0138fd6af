"""A backend whose module cannot be imported in this project."""

raise LookupError("settings are missing")
