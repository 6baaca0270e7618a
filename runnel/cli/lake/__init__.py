"""Commands about the lake: query, history, files, quarantine, upkeep.

Thin: parse, call `client`, print.
"""
