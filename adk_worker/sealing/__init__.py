"""Sealing: the originals of masked secrets, encrypted, so that a tool can be given them back (R2).

:mod:`~adk_worker.sealing.keys` says what a seal is, and seals and opens; :mod:`~adk_worker.sealing.key_file` keeps the
keys in a file. :mod:`~adk_worker.sealing.originals` is what a worker that carries a run on knows of its secrets. Keys
are changed beside a live fleet: :mod:`~adk_worker.sealing.rotation` goes through the runs, and
:mod:`~adk_worker.sealing.resealing` is what a store does for it.
"""
