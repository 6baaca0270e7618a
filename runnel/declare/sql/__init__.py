"""The SQL of tasks and conditions: header comment, tables read, literals.

Parses with sqlglot; executes nothing.
"""
