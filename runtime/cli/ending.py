"""How a verb ends when it does not end well: what is said, and the exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

from dspark import Decision, DsparkError, Refused
from dspark.output import write
from dspark.rule import letter
from dspark.runtime.errors import InvalidRequest, NonFiniteLogits, WeightError
from dspark.verb import FAILED, REFUSED, UNREADABLE, USAGE


def ended(verb: Callable[[argparse.Namespace], int], arguments: argparse.Namespace) -> int:
    """The exit code of `verb`, or that of the refusal or mistake it ran into, which is printed."""
    try:
        return verb(arguments)
    except Refused as refusal:
        return _say_refused(refusal.decision, as_json=arguments.json)
    except InvalidRequest as mistake:
        return _say(mistake, USAGE)
    except WeightError as problem:
        return _say(problem, REFUSED)
    except NonFiniteLogits as problem:
        return _say(problem, FAILED)


def _say_refused(decision: Decision, *, as_json: bool) -> int:
    from dspark.render import decision_lines

    if as_json:
        write([[json.dumps(decision.to_json())]])
    else:
        write(decision_lines(decision), sys.stderr)
    return UNREADABLE if letter(decision.rule_id) == "E" else REFUSED


def _say(problem: DsparkError, code: int) -> int:
    write([[f"dspark: {problem}"]], sys.stderr)
    return code
