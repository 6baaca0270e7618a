"""Deliver a change in work units, on Spark's executors: read its files, and let rows with equal keys meet.

Imports the modules of `connect/sinks` that read a change; what is sent to a target is what one process sends.
"""
