"""The executors of a cluster: run work units on them, ship code to them, check what they have.

Imports `spark/jvm` and the lake; the session imports it.
"""
