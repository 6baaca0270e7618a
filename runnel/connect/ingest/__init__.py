"""Ingest files of a source into its table.

Imports nothing heavy until a file is read.
"""
