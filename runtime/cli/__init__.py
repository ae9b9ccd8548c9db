"""The command-line verbs that decode: one module a verb.

Each has `add_arguments(parser)` and `run(arguments)`, which returns the exit code. `dspark.cli`
imports the one that is called.
"""
