"""Write frames into the slot: layout, quarantine, removal of rows.

Published later, by `run.publish_run`.
"""
