"""REST APIs as sources: pagination, authentication, rate limits, watermarks.

May import `connect.feed` and `connect.ingest`.
"""
