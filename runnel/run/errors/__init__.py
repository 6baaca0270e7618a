"""Describe errors of Spark and of users' Python for users.

Returns errors of Runnel; raises nothing itself.
"""
