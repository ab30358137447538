"""``python -m adk_worker.cli``, where no ``adk`` is on the path."""

from __future__ import annotations

import sys

from adk_worker.cli import main

if __name__ == "__main__":
    sys.exit(main())
