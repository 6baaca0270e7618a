"""Formats that are turned into JSON lines or Parquet before they are read."""
