"""Commands about flows: run, plan, schedules, runs, the service.

Thin: parse, call `client` or `project`, print.
"""
