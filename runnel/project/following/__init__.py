"""Follow a run that another process computes, as if this process computed it: one follower, one source per way.

It may import `lake`, `run` and what is below; modules of the fast path import neither SQLAlchemy nor requests.
"""
