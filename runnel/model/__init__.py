"""Values that several packages share.

Below plan and lake, so that neither has to know the other.
"""
