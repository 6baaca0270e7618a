"""Declare the points of a delivery at which a test may crash it."""

from runnel.failpoint import declare, reach

__all__ = ["reach"]

SENDING = declare("sink.sending", "a part of a change has been sent, the sink has not accepted all of it")
ACCEPTED = declare("sink.accepted", "a sink has accepted a change, its state has not moved")
REPLACING = declare("sink.replacing", "a file of a sink is in its place, others are not")
STAGING = declare("sink.staging", "a work unit has written rows of a change, the driver does not know of them yet")
ALL = (SENDING, ACCEPTED, REPLACING, STAGING)
