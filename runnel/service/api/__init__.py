"""The REST API under /api/v1.

No Spark and no users' code in this process.
"""
