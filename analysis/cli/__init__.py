"""The command ``hindcast``: the only place that knows both packages."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 the work failed, 2 wrong usage, 130 stopped.

    Parameters
    ----------
    arguments : sequence of str, optional
        What stands after ``hindcast``; by default the process's own. ``--debug`` may stand anywhere: it shows the
        traceback of an error that otherwise is one sentence.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given
    given = [word for word in given if word != "--debug"]
    # Fits are small; more threads than this spin and take the replay's core.
    os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count() or 1))

    try:
        # Importing takes a second, in which the user may stop us too.
        return _run(given, debug=debug)
    except KeyboardInterrupt:
        sys.stderr.write("hindcast: stopped; nothing half-written was left.\n")
        return 130


def _run(given: list[str], *, debug: bool) -> int:
    from analysis.cli import (  # noqa: F401 - registers
        demand_commands,
        fetch_commands,
        policy_commands,
        predict_commands,
        replay_commands,
        report_commands,
        trace_commands,
        what_if_commands,
    )
    from analysis.cli.app import app, say_error
    from analysis.errors import HindcastError, UsageError

    try:
        app(given, prog_name="hindcast")
    except SystemExit as stop:
        # The application turns Ctrl-C into a silent exit with 130.
        if stop.code == 130:
            raise KeyboardInterrupt from None
        return int(stop.code or 0)
    except HindcastError as error:
        if debug:
            raise
        say_error(str(error))
        return 2 if isinstance(error, UsageError) else 1
    except OSError as error:
        if debug:
            raise
        place = f"{error.filename}: " if error.filename else ""
        say_error(f"{place}{error.strerror or error}. Check that the place exists, can be written, and has room.")
        return 1
    except Exception as error:
        # The last door: a fault of ours shall not bury the user under a traceback unless it is asked for.
        if debug:
            raise
        say_error(
            f"a fault inside hindcast ({type(error).__name__}: {error}). Run the same command with --debug to see "
            "where, and please report that text."
        )
        return 1
    return 0
