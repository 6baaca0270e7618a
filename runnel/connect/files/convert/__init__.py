"""Formats that are converted to JSON lines or Parquet before they are read.

Each module converts one format.
"""
