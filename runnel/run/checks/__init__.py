"""Checks of rows and tables: conditions, counts, verdicts.

Spark computes the counts beside the write.
"""
