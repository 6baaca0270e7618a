"""The processes of `runnel up`: supervisor, server, worker.

Spark is only in workers.
"""
