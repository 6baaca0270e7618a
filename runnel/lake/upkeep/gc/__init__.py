"""Remove what no retained commit, run or reader needs: mark, then sweep.

The one place that deletes files of the warehouse.
"""
