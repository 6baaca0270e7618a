"""List the revisions of the catalog's schema."""

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010")
"""All revisions, oldest first; this version of Runnel needs the last one."""
