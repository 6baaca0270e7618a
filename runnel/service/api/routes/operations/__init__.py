"""Routes of operations: runs, schedules, backfills, alarms, tokens, workers.

Thin: parse, call, answer.
"""
