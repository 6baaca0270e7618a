"""Execute: run, backfill, replay, release, merge and run, deliver; choose which process computes a run.

May import `project.planning` and `project.following`.
"""
