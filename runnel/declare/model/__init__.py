"""The values that a loaded project consists of: Flow, Task, Source, types.

Frozen values; nothing is read or computed here.
"""
