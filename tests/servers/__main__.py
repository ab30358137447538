"""Prints the Debian packages of the servers that are missing here, in one line. For scripts/lib/setup.sh."""

from __future__ import annotations

from tests.servers.binaries import missing_packages

print(*missing_packages())  # noqa: T201 - the answer
