"""What a run was based on: code, git, packages.

Reads the project's folder and the environment.
"""
