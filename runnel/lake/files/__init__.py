"""File tables: put, get, ls and remove over tables of paths and contents.

May import everything of the lake but merge and upkeep.
"""
