"""Let what is imported so far be looked through by no garbage collection of the processes that are forked off.

The first collection of each would write to all of it, and the system copy it: 0.15 s of the 0.4 s of a small run.
"""

import gc

gc.collect()
gc.freeze()
