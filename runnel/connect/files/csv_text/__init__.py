"""The text of CSV files: headers and records with their lines, rejected rows, the likely dialect, many files as one.

May import `connect/files`, except its readers of formats.
"""
