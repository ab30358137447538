"""What runs may spend and what they have spent: limits, reservations, and the rules about them (C6, P3).

A run has a :class:`~adk_worker.ledger.booking.Ledger`, a tenant with limits an
:class:`~adk_worker.ledger.accounts.Account`. What the next model call may take at most is reserved in both before it is
made, and settled by what it took in the boundary's own commit. A call has a key, which is its run and iteration, and
every attempt at it the fence of its acquisition: a reservation that comes again changes nothing, and one that is
settled is gone.

What became of a call whose worker died, or which was aborted, nobody knows: it is *unaccounted*, neither free nor taken
for spent. It counts against every limit as what was reserved for it, so that a crash loop ends at the limit.

:mod:`~adk_worker.ledger.amounts`, :mod:`~adk_worker.ledger.booking` and :mod:`~adk_worker.ledger.accounts` are pure: a
store, which is a :class:`~adk_worker.ledger.store.LedgerStore`, reads under its lock, asks, and writes the answer. So
are :mod:`~adk_worker.ledger.waitlist` and :mod:`~adk_worker.ledger.rounds`: runs that a tenant's account has turned
away, and who of them goes on once there is room.

:mod:`~adk_worker.ledger.spending` is what a worker knows of its calls, :mod:`~adk_worker.ledger.raising` what people
and the reaper do about runs that wait, and :mod:`~adk_worker.ledger.words` says all of it to people.
"""
