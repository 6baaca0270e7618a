"""The service: it schedules, hands out and answers. Spark is only in its workers."""
