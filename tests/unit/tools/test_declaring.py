from __future__ import annotations

import datetime as dt
import enum
import functools
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, Field

from adk_worker.errors import ConfigurationError, ToolArgumentsError
from adk_worker.outcomes import Effect
from adk_worker.tools.context import ToolContext
from adk_worker.tools.declaring import Tool, tool

if TYPE_CHECKING:
    from decimal import Context as OnlyForTypeCheckers


class Seat(BaseModel):
    row: int
    letter: Literal["A", "B"]


class Cabin(enum.Enum):
    ECONOMY = "economy"
    FIRST = "first"


class Unshowable:
    pass


def _no_dictionary(value: str) -> str:
    raise RuntimeError("no dictionary")


def a_context(**given: Any) -> ToolContext:
    return ToolContext(**{"tenant": "acme", "run_id": "run_1", "agent": "booking", "call_id": "call_1_0"} | given)


@tool
async def book_seat(ctx: ToolContext, flight: str, seats: int = 1) -> str:
    """Book seats on a flight."""
    return f"{ctx.run_id}: {seats} on {flight}"


# --- what a declaration makes --------------------------------------------------------------------------------------


def test_a_bare_decorator_makes_an_effectful_tool_named_and_described_by_its_function():
    """I7: effectful is the default."""
    assert isinstance(book_seat, Tool)
    assert book_seat.name == "book_seat"
    assert book_seat.description == "Book seats on a flight."
    assert book_seat.effect is Effect.EFFECTFUL
    assert book_seat.timeout == 60
    assert book_seat.did_not_happen == ()
    assert book_seat.is_async


def test_the_schema_shows_the_parameters_and_hides_the_context():
    assert book_seat.schema == {
        "type": "object",
        "properties": {"flight": {"type": "string"}, "seats": {"type": "integer", "default": 1}},
        "required": ["flight"],
        "additionalProperties": False,
    }


def test_a_schema_handed_out_can_be_changed_without_changing_the_tool():
    book_seat.schema["properties"] = {}
    assert set(book_seat.schema["properties"]) == {"flight", "seats"}


def test_nested_models_constraints_and_descriptions_reach_the_schema():
    @tool(effect="read_only")
    def find(
        seat: Seat,
        cabin: Cabin = Cabin.ECONOMY,
        limit: Annotated[int, Field(gt=0, description="How many.")] = 5,
    ) -> list[str]:
        return []

    schema = find.schema
    assert schema["properties"]["seat"] == {"$ref": "#/$defs/Seat"}
    assert schema["properties"]["limit"] == {
        "default": 5, "description": "How many.", "exclusiveMinimum": 0, "type": "integer",
    }  # fmt: skip
    assert schema["properties"]["cabin"]["default"] == "economy"
    assert schema["required"] == ["seat"]


def test_parameters_may_have_names_that_pydantic_keeps_for_itself():
    @tool
    def odd(schema: str, model_config: int, _limit: int, copy: bool, title: str, self_: str = "x") -> str:
        return schema

    given = {"schema": "s", "model_config": 1, "_limit": 2, "copy": True, "title": "t"}

    assert list(odd.schema["properties"]) == sorted(["schema", "model_config", "_limit", "copy", "title", "self_"])
    assert odd.validate(given) == given | {"self_": "x"}


def test_the_context_is_found_wherever_it_stands():
    @tool
    def last(flight: str, *, ctx: ToolContext) -> str:
        return flight + ctx.tenant

    @tool
    def none(flight: str) -> str:
        return flight

    assert last.bound(a_context(), {"flight": "X1"})() == "X1acme"
    assert none.bound(a_context(), {"flight": "X1"})() == "X1"


async def test_a_tool_can_be_called_like_its_function():
    assert await book_seat(a_context(), "X1", seats=2) == "run_1: 2 on X1"


def test_a_bound_method_a_partial_and_a_callable_object_can_be_tools():
    class Desk:
        def find(self, flight: str) -> str:
            return flight

        async def __call__(self, flight: str) -> str:
            return flight

    def search(limit: int, flight: str) -> str:
        return flight * limit

    desk = Desk()
    method = tool(desk.find)
    partial = tool(name="search_twice")(functools.partial(search, 2))
    called = tool(name="desk")(desk)

    assert method.schema["required"] == ["flight"]
    assert partial.bound(a_context(), partial.validate({"flight": "X"}))() == "XX"
    assert called.is_async
    assert list(called.schema["properties"]) == ["flight"]


def test_a_return_annotation_that_cannot_be_resolved_is_nobodys_business():
    @tool
    def add(number: int) -> OnlyForTypeCheckers:
        raise NotImplementedError

    assert add.validate({"number": 1}) == {"number": 1}


def test_a_schema_is_the_same_in_every_process():
    """C7: sets iterate in another order in each process."""
    program = (
        "from adk_worker.tools.declaring import tool\n"
        "@tool\n"
        "def f(tags: frozenset[str] = frozenset('abcdefgh'), more: dict[str, set[str]] = {'x': set('ijklmnop')}): ...\n"
        "print(f.signature.schema_json)\n"
    )
    printed = set()
    for seed in ("1", "2", "3"):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        printed.add(ran.stdout)

    assert len(printed) == 1
    assert '"default":["a","b"' in printed.pop()


# --- what the model sends ------------------------------------------------------------------------------------------


def test_arguments_become_python_values_with_defaults_filled_in():
    @tool
    def hold(seat: Seat, until: dt.date, cabin: Cabin = Cabin.FIRST) -> str:
        return ""

    values = hold.validate({"seat": {"row": 3, "letter": "A"}, "until": "2026-12-01"})

    assert values == {"seat": Seat(row=3, letter="A"), "until": dt.date(2026, 12, 1), "cabin": Cabin.FIRST}


def test_arguments_are_validated_as_json_even_where_the_type_is_strict():
    @tool
    def hold(until: Annotated[dt.date, Field(strict=True)]) -> str:
        return ""

    assert hold.validate({"until": "2026-12-01"}) == {"until": dt.date(2026, 12, 1)}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({}, "flight: Field required"),
        ({"flight": "X1", "seats": "many"}, "seats: Input should be a valid integer"),
        ({"flight": "X1", "colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"flight": "X1", "ctx": {}}, "ctx: Extra inputs are not permitted"),
        ({"flight": float("nan")}, "not JSON compliant"),
        ({"flight": "\ud800"}, "Invalid JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_named_for_the_model(arguments, reason):
    """I10: the model is told; the message names the argument and gives no address of any documentation."""
    with pytest.raises(ToolArgumentsError) as caught:
        book_seat.validate(arguments)

    assert reason in caught.value.reason
    assert "http" not in str(caught.value)
    assert caught.value.tool == "book_seat"


def test_a_refusal_does_not_repeat_what_was_sent_and_stays_short():
    secret = "hunter2" * 1_000
    wrong: dict[str, Any] = {"flight": [secret], "seats": secret}

    with pytest.raises(ToolArgumentsError) as caught:
        book_seat.validate(wrong | {f"{secret}{number}": number for number in range(50)})

    assert len(str(caught.value)) < 1_500
    assert "and 47 more" in caught.value.reason
    with pytest.raises(ToolArgumentsError) as caught:
        book_seat.validate(wrong)
    assert "hunter2" not in str(caught.value)


def test_a_validator_of_the_authors_that_breaks_is_a_refusal_too():
    @tool
    def translate(word: Annotated[str, AfterValidator(_no_dictionary)]) -> str:
        return word

    with pytest.raises(ToolArgumentsError, match="RuntimeError: no dictionary"):
        translate.validate({"word": "seat"})


def test_arguments_nested_beyond_reason_are_a_refusal():
    @tool
    def take(value: list[Any]) -> str:
        return ""

    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    with pytest.raises(ToolArgumentsError):
        take.validate({"value": deep})


# --- what cannot be declared ---------------------------------------------------------------------------------------


def _positional(*flights: str) -> str:
    return ""


def _keywords(**options: str) -> str:
    return ""


def _by_position(flight: str, /) -> str:
    return flight


def _untyped(flight) -> str:
    return flight


def _two_contexts(one: ToolContext, other: ToolContext) -> str:
    return ""


def _optional_context(ctx: ToolContext | None = None) -> str:
    return ""


def _unresolved(number: OnlyForTypeCheckers) -> str:
    return ""


def _no_schema(thing: Unshowable) -> str:
    return ""


def _callback(then: type[int] = int, call: Any = Field(default=1)) -> str:  # noqa: B008 - what is refused here
    return ""


def _generator(flight: str):
    yield flight


async def _async_generator(flight: str):
    yield flight


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (_positional, r"takes \*flights"),
        (_keywords, r"takes \*\*options"),
        (_by_position, "takes 'flight' by position only"),
        (_untyped, "parameter 'flight' of tool '_untyped' has no annotation"),
        (_two_contexts, "takes ToolContext 2 times"),
        (_optional_context, "annotate parameter 'ctx' of tool '_optional_context' as ToolContext"),
        (_unresolved, "the annotation of parameter 'number' .* cannot be resolved: NameError"),
        (_no_schema, "the parameters of tool '_no_schema' have no JSON schema"),
        (_callback, r"the default of parameter 'call' of tool '_callback' is a Field\(\)"),
        (_generator, "is a generator"),
        (_async_generator, "is a generator"),
        (lambda flight: flight, "'<lambda>' cannot name a tool"),
        (functools.partial(_no_schema), "None cannot name a tool"),
    ],
)
def test_a_signature_that_cannot_be_shown_to_a_model_is_refused_where_it_is_declared(function, said):
    with pytest.raises(ConfigurationError, match=said):
        tool(function)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        ({"effect": "harmless"}, "effect='harmless'; it is one of 'effectful', 'idempotent', 'read_only'"),
        ({"timeout": 0}, "timeout=0; it has to be seconds above 0, or None"),
        ({"timeout": "30"}, "timeout='30'"),
        ({"timeout": float("nan")}, "timeout=nan"),
        ({"max_in_flight": -1}, "max_in_flight=-1"),
        ({"retries": 2}, "is effectful and has retries=2"),
        ({"retries": -1, "effect": "read_only"}, "retries=-1"),
        ({"retries": True, "effect": "read_only"}, "retries=True"),
        ({"max_result_bytes": 0}, "max_result_bytes=0"),
        ({"name": "book a seat"}, "'book a seat' cannot name a tool"),
        ({"name": "x" * 65}, "cannot name a tool"),
        ({"probe": "ask"}, "has to be a function that can be called as probe"),
        ({"probe": _untyped}, "too many positional arguments"),
        ({"did_not_happen": Exception}, "lists Exception itself"),
        ({"did_not_happen": (ValueError, "OSError")}, "lists 'OSError', which is no type of exception"),
        ({"did_not_happen": (KeyboardInterrupt,)}, "which is no type of exception"),
    ],
)
def test_a_declaration_that_contradicts_itself_is_refused_by_name(declared, said):
    """I7, I10."""
    with pytest.raises(ConfigurationError, match=said.replace("(", r"\(").replace(")", r"\)")):

        @tool(**declared)
        def pay(amount: int) -> str:
            return ""


def test_one_type_of_did_not_happen_may_stand_alone():
    @tool(did_not_happen=ConnectionError, max_in_flight=0, timeout=None)
    def pay(amount: int) -> str:
        return ""

    assert pay.did_not_happen == (ConnectionError,)
    assert pay.max_in_flight == 0
    assert pay.timeout is None


# --- the context ---------------------------------------------------------------------------------------------------


def test_key_fence_and_run_become_headers():
    """F3."""
    context = a_context(idempotency_key="adk1-ff", fence=7)

    assert context.headers() == {"Idempotency-Key": "adk1-ff", "Adk-Fence": "7", "Adk-Run": "acme/run_1"}


def test_headers_leave_out_what_there_is_not():
    """F3: without a store of claims, or without a lease."""
    assert a_context().headers() == {"Adk-Run": "acme/run_1"}


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a/b", "c"), ("a", "b/c")), (("a%2Fb", "c"), ("a/b", "c")), (("ä", "*"), ("ä*", ":"))],
)
def test_no_pair_of_names_passes_for_another_in_a_header(one, other):
    """T1."""
    first, second = (a_context(tenant=tenant, run_id=run_id).headers()["Adk-Run"] for tenant, run_id in (one, other))

    assert first != second
    assert first.count("/") == second.count("/") == 1
    assert first.isascii()
    assert second.isascii()


def test_progress_reaches_the_sink_and_never_raises():
    said: list[tuple[str, float | None]] = []

    def broken(message: str, fraction: float | None) -> None:
        raise OSError("nobody listens")

    a_context(sink=lambda message, fraction: said.append((message, fraction))).progress("half", fraction=0.5)
    a_context(sink=broken).progress("half")
    a_context().progress("half")

    assert said == [("half", 0.5)]


def test_metadata_is_read_only():
    given = {"user": "ada"}
    context = a_context(metadata=given)
    given["user"] = "eve"

    assert context.metadata["user"] == "ada"
    with pytest.raises(TypeError):
        context.metadata["user"] = "eve"
