"""Rewrite locations after a warehouse was moved.

Rewrites metadata; copies no data.
"""
