"""Detect which files of a source are new, changed, renamed or removed.

Lists and hashes files; reads no rows and writes nothing.
"""
