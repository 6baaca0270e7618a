"""The server process: API and scheduler.

No Spark and no users' code.
"""
