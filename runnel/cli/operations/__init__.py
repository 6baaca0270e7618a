"""Commands for operators: alarms, and tokens for the service.

Thin: parse, call `client` or `project`, print.
"""
