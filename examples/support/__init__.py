"""An agent written with pydantic-ai, carried by a fleet as it is: refunds for customers who complain.

``agent.py`` knows nothing of adk-worker; ``agents.py`` carries it; ``shop.py`` is the far side. It wants the extra
``models``. Run it in process with ``python -m examples.support``, or on a fleet with
``ADK_AGENTS=examples.support.agents``.
"""

from __future__ import annotations
