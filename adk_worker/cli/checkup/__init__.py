"""What ``adk doctor`` looks at: each module knows one side of a fleet, and tells what it found there.

A check only reads. It is given a :class:`~adk_worker.cli.checkup.finding.Subject` and tells its findings one by one, so
that what was found before something hangs is not lost.
"""
