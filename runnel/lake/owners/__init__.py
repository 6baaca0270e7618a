"""The owners of rows: which source file each row of a data file came from, also if many source files share it.

Reads footers and writes data files; knows neither sources nor commits. May import `scan` and `iceberg`.
"""
