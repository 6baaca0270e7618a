"""Execute: run, backfill, replay, release, merge and run, deliver, follow.

May import `project.planning`.
"""
