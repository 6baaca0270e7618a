"""The values that a run returns, and their JSON.

Frozen values.
"""
