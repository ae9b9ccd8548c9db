"""The reviewed tables, as YAML: routing rules, lane contracts, messages, and other engines' routes.

No code lives here. Read a file with `importlib.resources.files("dspark.rules")`, which works from a
wheel and from a checkout alike.
"""
