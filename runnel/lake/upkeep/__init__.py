"""Upkeep of the lake: compact, erase, gc, fsck, relocate.

The highest package of the lake.
"""
