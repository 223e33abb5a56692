"""``python -m edge_runtime`` is the command ``edge-runtime``."""

import sys

from edge_runtime.tools.cli import main

sys.exit(main())
