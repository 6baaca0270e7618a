"""Feeds: sources that are no files. Each says what is new without Spark, and fetches it into files.

The registry of feeds imports the systems; nothing here does.
"""
