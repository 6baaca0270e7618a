"""Ingest: the files of a source into its table. Imports nothing heavy until something is read."""

from runnel.connect.ingest.digests import DigestCache
from runnel.connect.ingest.found import Arrival, Found
from runnel.connect.ingest.position import arrivals
from runnel.connect.ingest.reading import Ingested, read

__all__ = ["Arrival", "DigestCache", "Found", "Ingested", "arrivals", "read"]
