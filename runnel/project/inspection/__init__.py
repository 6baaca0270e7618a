"""Inspect: status, lineage, schedules, quarantine, alarms, run logs.

Reads only.
"""
