"""The history of the catalog database's schema, one module a step.

Run by Alembic, and by nothing else.
"""
