"""Suggest the options that a file needs to be read: where its table begins, how it writes numbers and times.

May import `connect/files` and the rest of `connect/load`, except for `load.py`.
"""
