"""Stores that each break one rule, and the test of the suites that sees it.

Each is the store in memory with one lie told: what somebody who writes a store has got wrong before. See
``test_liars.py``, which has the suites find every one of them.
"""
