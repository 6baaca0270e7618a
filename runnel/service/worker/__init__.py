"""The worker process: claims requests from the queue and executes them.

One Spark driver per process.
"""
