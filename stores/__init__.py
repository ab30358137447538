"""The stores: where a fleet keeps its runs, leases, checkpoints, claims and transcripts."""
