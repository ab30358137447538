from __future__ import annotations

import inspect
import pickle
import re

import pytest

from adk_worker import errors
from adk_worker.errors import AdkError

# One of each class, with every field given.
EXAMPLES = [
    errors.AdkError("root"),
    errors.ConfigurationError("ADK_STORE_URL is not set"),
    errors.AgentImportError(module="myshop.agents", reason="No module named 'myshop'"),
    errors.UnknownAgentError(agent="booking", known=("refunds",)),
    errors.SchemaVersionError(found="0001", wanted="0002"),
    errors.InvalidNameError(what="tenant", reason="it is empty"),
    errors.NotJSONError(what="metadata", reason="a: a set", use="a text"),
    errors.StoreUnavailableError(store="postgresql://host/db", reason="connection refused"),
    errors.StoreRefusedError(store="postgresql://host/db", reason="no such user", hint="or ask", setting="ADK_X_URL"),
    errors.CommitUnknownError(store="postgresql://host/db", reason="connection lost"),
    errors.ValueTooLargeError(what="the input", size=11, max_bytes=10),
    errors.BrokerUnavailableError(broker="redis://host", reason="connection refused"),
    errors.UnreadableMessageError(reason="version 9"),
    errors.RunNotFoundError(tenant="acme", run_id="run"),
    errors.RunExistsError(tenant="acme", run_id="run", agent="booking"),
    errors.RunStateError(tenant="acme", run_id="run", status="completed", wanted="it stays as it is"),
    errors.LeaseError("about a lease"),
    errors.RunLeaseError(tenant="acme", run_id="run", holder="queue", fence=7, expires_at=1_000.5),
    errors.StaleFenceError(tenant="acme", run_id="run", presented=7, current=8),
    errors.LeaseLostError(tenant="acme", run_id="run", fence=7, reason="not renewed"),
    errors.CheckpointError("about a frontier"),
    errors.NoCheckpointError(tenant="acme", run_id="run"),
    errors.CheckpointTooLargeError(size=2, max_bytes=1),
    errors.CheckpointFormatError(found=2, supported=1),
    errors.RevisionMismatchError(agent="booking", pinned="r1", registered=("r2",)),
    errors.FrontierLostError(tenant="acme", run_id="run", sequence=4),
    errors.HistoryUnavailableError(handle="h1.cnVu.1.0", reason="it is gone"),
    errors.SealKeyMissingError(tenant="acme", run_id="run", key_id="k1", known=("k2",)),
    errors.CallError("about a call"),
    errors.IndeterminateToolCallError(tenant="acme", run_id="run", calls=(("c-1", "book", None),)),
    errors.CallKeyReusedError(key="adk1-1"),
    errors.ClaimOwnerError(key="adk1-1"),
    errors.CallNotFoundError(tenant="acme", run_id="run", call="book", known=("book (c-1, key adk1-1)",)),
    errors.CallDecidedError(key="adk1-1", tool="book", how="never ran", by="person:ana", at=1_000.5),
    errors.CallStateError(key="adk1-1", tool="book", state="not in flight", wanted="nothing of it was ever sent"),
    errors.OwnerMayLiveError(key="adk1-1", tool="book", owner="w-1", reason="its owner may be alive"),
    errors.NotApprovedError(keys=("adk1-1", "adk1-2")),
    errors.ResumeConflictError(tenant="acme", run_id="run"),
    errors.ToolArgumentsError(tool="book", reason="seats: not a number"),
    errors.ToolError("no seat left", happened=False),
    errors.ModelError("overloaded", transient=True),
    errors.ModelUnavailableError("overloaded", retry_after=3.5),
    errors.ApprovalRefusedError(tenant="acme", run_id="run", name="req-1", stands="it was denied by ana"),
    errors.NotAllowedError(actor="ana", action="settle", reason="she is new here"),
    errors.BudgetError("there is no limit of tokens to be raised; set one first (adk budget set)."),
    errors.WaitTimeoutError.of_run("run", 3),
]

TREE = {cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, AdkError)}


def test_there_is_an_example_of_every_class():
    """So that a new class cannot stay out of the tests below."""
    assert {type(error) for error in EXAMPLES} == TREE


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickling_with_its_fields(error):
    """T2: Celery may carry it between processes; notes that somebody added come along."""
    error.add_note("seen by worker-7")

    read = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own, a line before

    assert type(read) is type(error)
    assert str(read) == str(error)
    assert (read.args, read.__dict__) == (error.args, error.__dict__)
    assert read.retryable is error.retryable


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_the_fields_of_an_error_are_what_it_was_made_of(error):
    """Whoever handles it need not read its message."""
    made_of = set(inspect.signature(type(error).__init__).parameters) - {"self", "message", "args", "kwargs"}

    assert made_of <= set(vars(error))


def test_what_may_succeed_by_itself_is_retryable():
    """And nothing else is: an indeterminate call above all (I5)."""
    assert {cls for cls in TREE if cls.retryable} == {
        errors.StoreUnavailableError,
        errors.CommitUnknownError,
        errors.BrokerUnavailableError,
        errors.RunLeaseError,
        errors.ResumeConflictError,
        errors.WaitTimeoutError,
    }


def test_the_tree_is_drawn_as_it_is():
    """The docstring is what people read first."""
    drawn = _parents(errors.__doc__)
    made = {cls.__name__: cls.__mro__[1].__name__ for cls in TREE if cls is not AdkError}

    assert drawn == made


@pytest.mark.parametrize(
    ("error", "kind"),
    [(errors.InvalidNameError, ValueError), (errors.NotJSONError, ValueError), (errors.WaitTimeoutError, TimeoutError)],
)
def test_an_error_is_what_pythons_own_would_be(error, kind):
    """`except ValueError` is what callers write."""
    assert issubclass(error, kind)


@pytest.mark.parametrize(
    ("current", "said"), [(7, "fence 7 gave up its lease already"), (8, "fence 7 was superseded by fence 8")]
)
def test_a_refused_write_says_what_became_of_its_fence(current, said):
    """F1."""
    assert said in str(errors.StaleFenceError(tenant="acme", run_id="run", presented=7, current=current))


def test_undecided_calls_are_all_named():
    """I5."""
    said = str(
        errors.IndeterminateToolCallError(
            tenant="acme", run_id="run", calls=(("c-1", "book", "adk1-1"), ("c-2", "pay", None))
        )
    )

    assert "book (c-1, key adk1-1); pay (c-2, key none)" in said


def test_a_store_without_a_schema_says_which_command_makes_it():
    said = str(errors.SchemaVersionError(found=None, wanted="0002"))

    assert said == "the store has no adk-worker schema, this adk-worker needs 0002. Run: adk db upgrade"


def _parents(drawing):
    """The parent of each class by the drawing's indentation."""
    parents, path = {}, ["AdkError"]
    for line in drawing.splitlines():
        found = re.match(r"^    ((?:│   |    )*)(?:├── |└── )(.+)$", line)
        if not found:
            continue
        depth = len(found[1]) // 4
        names = re.findall(r"\b[A-Z]\w*Error\b", found[2])
        del path[depth + 1 :]
        for name in names:
            parents[name] = path[depth]
        path.append(names[0])
    return parents
