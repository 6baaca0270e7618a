"""Ingest and load files in work units, on Spark's executors: inspect units, settle the columns once, write the units.

Imports `connect/ingest` and what is below it; each rule about types, columns and bad rows is the one of a whole batch.
"""
