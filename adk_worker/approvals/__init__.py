"""Approvals: what a person is asked before a call is made, what they said, and what they let pass unasked (P1).

A tool, or an agent for all of its tools, declares with an :class:`~adk_worker.approvals.declaring.Approval` that a
person has to agree to a call. Before any call of such a turn is dispatched, the run waits, with an
:class:`~adk_worker.approvals.requests.ApprovalRequest` for each call that needs one. A request is bound to that call,
to the digest of its arguments, to those who may answer it, and to a time by the store's clock. It is answered once
(:mod:`~adk_worker.approvals.answers`). What the answer permits is spent by the write that acts on it, and permits no
other call.

A :class:`~adk_worker.approvals.requests.Grant` is given with an approval: calls of that tool in that run pass without
being asked about, until it is revoked or its time is over.

The rules are in :mod:`adk_worker.transitions.approvals`, and a store keeps them as
:class:`~adk_worker.approvals.store.ApprovalOperations`. :mod:`~adk_worker.approvals.asking` is the part of an iteration
that is about approvals, and :mod:`~adk_worker.approvals.words` says to people what they are asked.
"""
