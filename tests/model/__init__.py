"""An explicit-state check of the protocol: one run, its store row, its messages, its workers, and all that goes wrong.

Every order of events within :class:`~tests.model.bounds.Bounds` is tried, over the very transition tables that the
stores use. What surrounds the tables (who writes when, what a worker does next) is modelled here; see the modules:

    world      what a state is
    rules      the tables, as functions that can be replaced
    claims     the claims of its calls, and asked, what people were asked
    store      the writes of a run store, and what must be true of each
    worker     what one worker does next; beside, the same about the second call of a turn
    around     messages, time, the reaper, the far side
    people     what people do: cancel, queue again, hold the lease, decide, approve
    moves      all of it together: the states that may come next
    search     all states, breadth first, so that a counter-example is a shortest one
    fairness   where a run gets to once nothing goes wrong any more
    mutants    the protocol with one rule taken out; asked_mutants, one of those about approvals
    lone       the claims alone, where no fence stands behind them

Larger bounds than the tests': ``python -m tests.model --help``.
"""
