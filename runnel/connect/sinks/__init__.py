"""Deliver changes of tables to files, Kafka, webhooks, functions and databases.

Imported only if something is delivered.
"""
