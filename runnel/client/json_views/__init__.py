"""The JSON of the product's nouns, the same for the command line and REST.

Reads values of lower layers; computes nothing.
"""
