"""Server sessions that work asynchronously, polled from one thread.

Whoever runs statements calls ``run(sql, parameters)``, and gets the rows, or a :class:`StatementFailed` with the server's SQLSTATE, hint and detail.
There are four that have it: :class:`Session` (polled), :class:`BlockingSession` (waited for, with COPY: of direct workers and of installations),
``CallerSession`` (the caller's own, through SPI) and ``Connections`` (those that a user has, of any driver). The errors of all drivers become ours in :func:`failure_of`.

A ``Session`` never blocks: ``send`` starts a statement, ``advance`` polls it once, and one thread drives many of them by :func:`wait_any`.
``run`` is send, then advance until it is done. Each time it has waited for ``POLL_SECONDS`` it calls the session's *tick*, which raises where the caller
wants no more; the statement is cancelled then. A :class:`SessionPool` keeps what is open, and gives each session the settings of the caller's.
"""
