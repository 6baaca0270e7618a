"""The facade of a lake behind a service, over HTTP.

No Spark, no catalog database and no project in this process.
"""
