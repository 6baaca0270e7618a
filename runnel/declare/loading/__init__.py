"""Load a project: import its flow files, collect declarations, link inputs.

The one place that runs users' code to declare.
"""
