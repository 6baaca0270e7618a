"""Kafka: topics as a source, and a producer for those who write to one."""
