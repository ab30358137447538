"""adk-worker: agent runs that survive the death of the process that holds them."""
