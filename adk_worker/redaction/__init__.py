"""Redaction: secrets are replaced by placeholders where text enters a run, and found where it was stored before.

:mod:`~adk_worker.redaction.masking` has the rules (R1, R2, R3), :mod:`~adk_worker.redaction.placeholders` what stands
in a text for a secret, and :mod:`~adk_worker.redaction.scanning` looks through what a store holds. What looks like a
secret at all is for :mod:`adk_worker.detection` to say, and :mod:`adk_worker.sealing` keeps the originals, if anybody
does.
"""
