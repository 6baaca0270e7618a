"""Pins of readers, slots of runs, and which process owns them.

Decides what garbage collection must leave alone.
"""
