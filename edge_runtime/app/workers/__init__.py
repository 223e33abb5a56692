"""Workers: several processes, a model each, that share the topics of one application by key.

::

    share        which keys are this process's own, and what drops the others' messages
    plan         configuration of one worker; what cannot be shared is refused
    child        one worker, as its parent sees it
    supervisor   the parent: starts workers, restarts and stops them
    sums         one page of metrics out of several
    picture      one picture out of several
    site         what looks in: the page, the metrics and the socket of all workers
    status       the status topic of all workers

docs/workers.md shows it in use.
"""
