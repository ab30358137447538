"""The README's first agent does what the README says, typed as it stands there."""

from __future__ import annotations

import re
import subprocess
import sys
from textwrap import indent

from tests.architecture.packages import ROOT

BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_first_agent_runs_in_process(tmp_path):
    for block in BLOCKS:
        if named := re.match(r"# (myshop/\w+\.py)\n", block):
            file = tmp_path / named[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(block)
    (in_process,) = (block for block in BLOCKS if "AgentRunner(" in block)
    program = tmp_path / "program.py"
    program.write_text(
        "import asyncio\nfrom myshop.agents import booking\n\nasync def main():\n"
        f"{indent(in_process, '    ')}    print(run.status.value, run.output)\n\nasyncio.run(main())\n"
    )

    ran = subprocess.run([sys.executable, program.name], cwd=tmp_path, capture_output=True, text=True, check=False)

    assert (ran.stdout, ran.stderr) == ("completed Booked.\n", "")
