"""JSON Schemas of the files in `dspark.rules` and of every JSON document the command line prints.

No code lives here. An editor finds a schema by the `yaml-language-server` comment at the top of a
rules file.
"""
