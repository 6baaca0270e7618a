"""Where tables and rows come from: what computed a table, which file or run brought a row, what a commit ingested.

Reads only. The top of `lake`: may import every other part of it.
"""
