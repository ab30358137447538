"""Scribes: they write down what an iteration does, as it happens.

:mod:`~adk_worker.scribes.port` is what an iteration asks of one, :mod:`~adk_worker.scribes.fleet` writes to the fleet's
store under a fence, and :mod:`~adk_worker.scribes.local` to the stores of a run in process.
"""
