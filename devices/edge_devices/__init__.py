"""The hardware: what is known of boards and accelerators, one file for each family.

Each file has ``detect(root) -> Profile | None``, which reads nothing but the machine's own files, imports nothing of
the vendor's, and says in `EVIDENCE` what backs it. The runtime finds them through the entry-point group
``edge_runtime.devices``, where a package of your own can add another one.
"""

from __future__ import annotations
