"""Settle a complaint in process, and look at the shop's journal: ``python -m examples.support``."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

from adk_worker import AgentRunner, Checkpointer, MemoryCheckpointStore, MemoryIdempotencyStore, RunStatus
from examples.support.agents import carried, shop


async def main() -> None:
    """Run the agent once."""
    checkpoints = Checkpointer(MemoryCheckpointStore())
    async with AgentRunner(idempotency=MemoryIdempotencyStore(), checkpoints=checkpoints) as runner:
        run = await runner.run(
            carried, "My last order arrived broken.", tenant="acme", run_id="complaint-1", metadata={"customer": "Ada"}
        )
    for message in run.messages:
        print(f"{message.role:>9}:", message.text or [part.model_dump(exclude={"kind"}) for part in message.parts])
    print(f"   output: {run.output}   refunds: {shop().refunds()}")
    assert run.status is RunStatus.COMPLETED, run.detail
    assert len(shop().refunds()) == 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SHOP"] = str(Path(folder))
        asyncio.run(main())
