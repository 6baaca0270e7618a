"""Follow the code that a task reaches and write it in a canonical form.

Looks at objects, bytecode and syntax; runs no user code.
"""
