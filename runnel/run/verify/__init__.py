"""Compare a result with a full computation, and replay a commit.

Writes nothing to the lake's branches.
"""
