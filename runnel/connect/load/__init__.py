"""Values of files into Iceberg data files: match columns, infer types, write.

Shared by `runnel load` and by ingest.
"""
