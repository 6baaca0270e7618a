"""What to do for each table, and why.

Pure: gets facts, returns a Plan.
"""
