"""Alerts: thresholds that were passed, told once whatever number of supervisors look."""
