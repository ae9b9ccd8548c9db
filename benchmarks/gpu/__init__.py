"""Everything that only a GPU can tell, in one command of under five minutes: `scripts/gpu`.

Each step is a process of its own with a budget of seconds: a fault on a GPU ends the process that
caused it, and what comes behind has to go on. What a step finds it writes down at once, so that
nothing measured is lost with it. Which steps there are: `conduct.py`.
"""
