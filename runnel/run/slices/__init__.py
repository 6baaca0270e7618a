"""Compute a task by slices: find the keys that changed, read only their rows, replace only their rows."""
