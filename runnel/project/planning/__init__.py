"""Plan: the request, the facts of the lake, the plan.

Starts no JVM.
"""
