"""What the service keeps in the catalog: queue, schedules, workers, tokens, alarms.

Rows of the catalog database; no files.
"""
