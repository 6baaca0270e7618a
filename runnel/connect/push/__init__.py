"""Events that other programs push to the service."""
