"""Execute a plan on Spark: compute, check, publish.

May import everything below it; starts no session itself.
"""
