"""Steps that ingest: files, feeds, change logs, continuous sources.

The work is done in `connect`; the step stages its version.
"""
