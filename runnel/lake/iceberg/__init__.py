"""Iceberg files and metadata: snapshots, manifests, Parquet, schemas.

Knows nothing of commits and branches.
"""
