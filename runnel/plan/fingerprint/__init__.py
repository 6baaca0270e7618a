"""Fingerprints: what a task's result depends on besides its inputs.

Looks at objects in memory and files of the project; runs no user code.
"""
