"""Kafka: topics as a source, and a producer for those who write to one.

May import `connect.feed` and `connect.ingest`.
"""
