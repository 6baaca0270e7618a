"""Values that several packages share.

Below plan and lake, so that neither imports the other. May import names and errors.
"""
