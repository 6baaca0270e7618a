"""The revisions of the catalog's schema."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
"""Every step, oldest first; the last one is what this version of Runnel works with."""
