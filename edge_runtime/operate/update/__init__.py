"""Updates over the air: from an announcement to a bundle that runs, or back to the one before (docs/updates.md).

::

    announcement (MQTT)  ─► fetch ─► size, SHA-256 ─┐                            ┌─► runs, the old one is kept
    chunks (MQTT)        ─► join  ─► size, SHA-256 ─┼► check ─► shadow ─► trial ─┤
    file in a folder     ─► copy ───────────────────┘     └───────┴─────────┴────┴─► refused or held back; old one runs

Each step that must survive a power cut is in the state file before it is taken. Nothing here is imported unless the
configuration has a table ``[update]``.
"""
