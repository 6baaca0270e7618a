"""Events that other programs push: parse and write them durably.

Answers only after the events are on disk.
"""
