"""Check that the catalog, the history and the files of a lake agree.

Reads only.
"""
