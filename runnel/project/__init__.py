"""Use cases over an opened project: plan it, run it, inspect it.

Between the facades (`client`, `service`) and the engine (`run`).
"""
