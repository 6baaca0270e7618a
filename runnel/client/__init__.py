"""`rn.open`: one facade for notebooks, tests and scripts, local or remote.

May import `project` and everything below it.
"""
