"""Read and check the options of declarations: durations, cron, checks, formats.

Pure functions from what a user wrote to a value or a Mistake.
"""
