"""Keeping leases: whoever advances a run renews its lease meanwhile, and stops once they cannot (L8, L9, L10).

:mod:`~adk_worker.keeping.roster` decides what is due with which lease, :mod:`~adk_worker.keeping.keeper` is the thread
that does it for a whole process, and :mod:`~adk_worker.keeping.leaseholder` holds the lease of one run in process.
"""
