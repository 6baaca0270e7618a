"""Events of OpenLineage, the standard for lineage between tools.

Observers of runs; they change nothing.
"""
