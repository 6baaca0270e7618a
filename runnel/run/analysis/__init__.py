"""Read the analysed plan of a task's frame: inputs, slices, keys.

Pure over the plan's JSON.
"""
