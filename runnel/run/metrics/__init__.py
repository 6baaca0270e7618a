"""Where the time of a run went: phases, Spark's stages, progress.

Reads Spark's status store.
"""
