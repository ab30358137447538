"""A travel agent and the booking service that it books at, each a process of its own.

``service.py`` is the far side: it keeps a journal of its own and can be told to misbehave (``faults.py``). ``tools.py``
and ``agents.py`` are what an app would write. ``journal.py`` gives the verdict: was every seat booked once?
"""

from __future__ import annotations
