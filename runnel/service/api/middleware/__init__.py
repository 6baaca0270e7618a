"""What every request passes: authentication, scope, idempotency, tracing.

Knows no route.
"""
