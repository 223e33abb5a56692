"""Run a module that must not outlive the demo: ``python -m edge_runtime.tools.demo.child PARENT_PID MODULE ...``.

The demo may be killed with SIGKILL, by a person who wants to see what becomes of its cases; its broker and its cloud
would go on for ever, each on a port of its own. The kernel ends them instead (prctl(2), PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, module, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != int(parent):  # it died before the kernel was asked
        return
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
