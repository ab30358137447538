"""The transition tables: what may happen to each thing that a store keeps, and what comes of it.

A table is pure functions from what is stored to what is stored next, or to a refusal. A store reads under a lock, asks
one of them, and writes what comes back in the same transaction; so all stores keep the same rules, and none has rules
of its own. No table does I/O or knows a clock: the time is the store's (L1). Each is a module, and names come from it:

- :mod:`~adk_worker.transitions.runs`: a run with its lease
- :mod:`~adk_worker.transitions.leases`: a lease alone (L2 to L6)
- :mod:`~adk_worker.transitions.claims`: the claim of a call (I1, I3), and that of a resume (I9)
- :mod:`~adk_worker.transitions.settling`: what a person's decision does to a claim and to its run (I8)
- :mod:`~adk_worker.transitions.approvals`: what people are asked, answer and grant (P1)
- :mod:`~adk_worker.transitions.budgets`: what budgets do to a run (P3)

The stores in :mod:`adk_worker.memory` and in ``stores`` write by them. ``tests/model`` visits every order of events
that the first four allow.
"""
