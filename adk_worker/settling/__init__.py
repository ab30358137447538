"""Settling: a person says what became of a call that may have happened (I8).

They find out by the :mod:`~adk_worker.settling.evidence`. :mod:`~adk_worker.settling.deciding` tells which call they
mean and what they may say of it, and makes of that the :class:`~adk_worker.settling.settlement.Settlement` that a store
is asked to write. What it does to the claim, and to the run that waits for it, is in
:mod:`adk_worker.transitions.settling`.
"""
