"""The routes of the REST API, one module per noun.

Thin: parse, call `client` or `project`, answer.
"""
