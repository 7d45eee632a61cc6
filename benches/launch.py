"""Runs a program and tells the most memory that it took: for the scripts beside this. Needs only Python."""

import subprocess
import sys
import tempfile
from pathlib import Path

# Runs a program and tells its exit code and the most memory that it took, in KiB. A small process of its
# own, since the system counts what the parent had towards a child's peak.
LAUNCH = """
import os, sys
pid = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ)
_, status, usage = os.wait4(pid, 0)
with open(sys.argv[1], "w") as out:
    print(os.waitstatus_to_exitcode(status), usage.ru_maxrss, file=out)
"""


def launch(program: Path, words: list[str], folder: Path, stdout, stderr) -> tuple[int, int]:
    """Exit code and most memory in bytes of a program, run in a folder; its path must be absolute."""
    with tempfile.NamedTemporaryFile("r") as usage:
        command = [sys.executable, "-I", "-S", "-c", LAUNCH, usage.name, program, *words]
        subprocess.run(command, stdout=stdout, stderr=stderr, cwd=folder, check=True)
        code, taken = map(int, usage.read().split())
    return code, taken << 10
