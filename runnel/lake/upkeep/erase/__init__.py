"""Erase rows from every retained version, and name the copies that remain.

The one operation that rewrites history.
"""
