"""Find what is wrong with a lake and notify people.

Reads the catalog database; sends by channels.
"""
