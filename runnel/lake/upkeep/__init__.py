"""Upkeep of the lake: compact, erase, gc, fsck, relocate."""
