#!/usr/bin/env python
"""Run a command of the example project. Works from any directory."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def main() -> int:
    # Python put the script's own directory first: with it, every module here could be imported under two names.
    sys.path[:] = [str(HERE.parent), *(entry for entry in sys.path if Path(entry or ".").resolve() != HERE)]
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")
    missing = [name for name in ("django", "environ", "PIL") if importlib.util.find_spec(name) is None]
    if missing:
        print(f'Not installed: {", ".join(missing)}. The example needs: pip install -e ".[demo]"', file=sys.stderr)
        return 2

    from django.core.management import execute_from_command_line

    from example_project.database import DatabaseError, prepare

    try:
        prepare(sys.argv[1:])
        execute_from_command_line(sys.argv)
    except DatabaseError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
