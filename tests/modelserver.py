"""A model provider on this machine: speaks the HTTP protocols of OpenAI, Anthropic, Google and AWS, as a script says.

It answers each request with the next entry of its script, or with what a function makes of the request; the last entry
is repeated. What was asked of it is kept, and how many connections were opened to ask.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Call:
    """A tool call. ``arguments`` is what stands in the protocol: JSON as a rule, and anything where it is malformed."""

    name: str
    arguments: str | Mapping[str, Any] = "{}"
    id: str = "call_1"

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Says:
    """An answer. ``finish`` is ``stop``, ``length``, or ``refusal``."""

    text: str | None = None
    calls: Sequence[Call] = ()
    finish: str = "stop"
    input_tokens: int = 100
    output_tokens: int = 20
    thinking: str | None = None


@dataclass(frozen=True)
class Status:
    """An error, with OpenAI's ``code`` or Anthropic's ``type`` of it."""

    status: int
    code: str = "error"
    message: str = "something is wrong"
    headers: Mapping[str, str] = field(default_factory=dict)


class Hangs:
    """No answer, until the server ends."""


class CutsOff:
    """Half of an answer, and then the connection is closed."""


@dataclass(frozen=True)
class Garbles:
    """200, and a page that is none of the protocol's: one of HTML, or ``page`` as JSON."""

    page: Mapping[str, Any] | None = None


Turn: TypeAlias = Says | Status | Hangs | CutsOff | Garbles
Script: TypeAlias = Sequence[Turn] | Callable[[dict[str, Any]], Turn]


class ModelServer:
    """The running server. ``requests`` are the bodies that it was sent, oldest first."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.connections = 0
        self.open_connections = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        """Without a path."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def environment(self) -> dict[str, str]:
        """What leads the SDKs here."""
        return {
            "OPENAI_BASE_URL": f"{self.url}/v1",
            "OPENAI_API_KEY": "test-key",
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "test-key",
            "GOOGLE_GEMINI_BASE_URL": self.url,
            "GOOGLE_API_KEY": "test-key",
            "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": self.url,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test-key",
            "AWS_SECRET_ACCESS_KEY": "test-key",
            "NO_PROXY": "127.0.0.1",
        }

    def follow(self, script: Script) -> None:
        """Go on with another script, from its beginning."""
        with self._lock:
            self._script = script
            self.requests.clear()
            self.paths.clear()
            self.headers.clear()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def start(self) -> None:
        self._thread.start()

    def _next(self, path: str, headers: Mapping[str, str], body: dict[str, Any]) -> Turn:
        with self._lock:
            self.requests.append(body)
            self.paths.append(path)
            self.headers.append(headers)
            if callable(self._script):
                return self._script(body)
            return self._script[min(len(self.requests), len(self._script)) - 1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(_Handler):
            def setup(self) -> None:
                super().setup()
                with server._lock:
                    server.connections += 1
                    server.open_connections += 1

            def finish(self) -> None:
                super().finish()
                with server._lock:
                    server.open_connections -= 1

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                turn = server._next(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
                if isinstance(turn, Hangs):
                    server._over.wait()
                    self.close_connection = True
                else:
                    self.answer(turn, body)

        return Handler


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, turn: Turn, body: dict[str, Any]) -> None:
        if isinstance(turn, Status):
            self._send(json.dumps(_error(self.path, turn)), status=turn.status, headers=turn.headers)
        elif isinstance(turn, Garbles):
            if turn.page is None:
                self._send("<html>Welcome to the hotel's Wi-Fi</html>", kind="text/html")
            else:
                self._send(json.dumps(turn.page))
        else:
            said = turn if isinstance(turn, Says) else Says("a long answer")
            whole = next(render for path, render in _PROTOCOLS.items() if re.match(path, self.path))(said, body)
            streamed = bool(body.get("stream"))
            text = "".join(_events(whole)) if streamed else json.dumps(whole)
            kind = "text/event-stream" if streamed else "application/json"
            self._send(text, kind=kind, cut=isinstance(turn, CutsOff))

    def _send(
        self,
        text: str,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        kind: str = "application/json",
        cut: bool = False,
    ) -> None:
        payload = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(payload[: len(payload) // 2] if cut else payload)
        self.close_connection = self.close_connection or cut

    def log_message(self, *_: Any) -> None:
        """Be quiet."""


@contextmanager
def model_server(script: Script) -> Iterator[ModelServer]:
    """A running server, ended with the block."""
    server = ModelServer(script)
    server.start()
    try:
        yield server
    finally:
        server.close()


# --- the protocols ------------------------------------------------------------------------------------------------


def _chat_completion(said: Says, body: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": said.text}
    if said.finish == "refusal":
        message |= {"content": None, "refusal": said.text}
    if said.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.text}}
            for call in said.calls
        ]
    finish = {"stop": "tool_calls" if said.calls else "stop", "refusal": "stop"}.get(said.finish, said.finish)
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_800_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "finish_reason": finish, "message": message}],
        "usage": {
            "prompt_tokens": said.input_tokens,
            "completion_tokens": said.output_tokens,
            "total_tokens": said.input_tokens + said.output_tokens,
        },
    }


def _response(said: Says, body: dict[str, Any]) -> dict[str, Any]:
    output: list[dict[str, Any]] = []
    if said.thinking is not None:
        output.append(
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": said.thinking}],
                "encrypted_content": "c2lnbmF0dXJl",
            }
        )
    if said.text is not None:
        content = (
            {"type": "refusal", "refusal": said.text}
            if said.finish == "refusal"
            else {"type": "output_text", "text": said.text, "annotations": []}
        )
        output.append(
            {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [content]}
        )
    output += [
        {
            "type": "function_call",
            "id": f"fc_{number}",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.text,
            "status": "completed",
        }
        for number, call in enumerate(said.calls)
    ]
    cut = said.finish == "length"
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1_800_000_000,
        "model": body["model"],
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": said.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": said.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": said.input_tokens + said.output_tokens,
        },
    }


def _message(said: Says, body: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    if said.thinking is not None:
        content.append({"type": "thinking", "thinking": said.thinking, "signature": "c2lnbmF0dXJl"})
    if said.text is not None:
        content.append({"type": "text", "text": said.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _or_text(call.text)} for call in said.calls
    ]
    stop = "tool_use" if said.calls else "end_turn"
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": content,
        "stop_reason": {"length": "max_tokens", "refusal": "refusal"}.get(said.finish, stop),
        "stop_sequence": None,
        "usage": {"input_tokens": said.input_tokens, "output_tokens": said.output_tokens},
    }


def _events(message: dict[str, Any]) -> Iterator[str]:
    """An answer of Anthropic's as the stream of events that it is for models of long answers."""

    def event(kind: str, **data: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"

    begun = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
    yield event("message_start", message=begun)
    for index, block in enumerate(message["content"]):
        deltas: list[dict[str, Any]] = {
            "text": lambda block: [{"type": "text_delta", "text": block["text"]}],
            "thinking": lambda block: [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ],
            "tool_use": lambda block: [{"type": "input_json_delta", "partial_json": _as_text(block["input"])}],
        }[block["type"]](block)
        empty = {"text": "", "thinking": "", "signature": "", "input": {}}
        start = {key: empty.get(key, value) for key, value in block.items()}
        yield event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=ended, usage={"output_tokens": message["usage"]["output_tokens"]})
    yield event("message_stop")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _or_text(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _error(path: str, turn: Status) -> dict[str, Any]:
    if path.startswith("/v1/messages"):
        return {"type": "error", "error": {"type": turn.code, "message": turn.message}}
    if path.startswith("/model/"):
        return {"message": turn.message}
    if path.startswith("/v1beta/"):
        return {"error": {"code": turn.status, "message": turn.message, "status": turn.code}}
    return {"error": {"message": turn.message, "type": turn.code, "code": turn.code, "param": None}}


def _gemini(said: Says, body: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [] if said.text is None else [{"text": said.text}]
    parts += [
        {"functionCall": {"id": call.id, "name": call.name, "args": json.loads(call.text)}} for call in said.calls
    ]
    finish = {"length": "MAX_TOKENS", "refusal": "SAFETY"}.get(said.finish, "STOP")
    used = {"promptTokenCount": said.input_tokens, "candidatesTokenCount": said.output_tokens}
    return {
        "candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}],
        "usageMetadata": {**used, "totalTokenCount": said.input_tokens + said.output_tokens},
        "modelVersion": "gemini-2.5-flash",
    }


def _converse(said: Says, body: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [] if said.text is None else [{"text": said.text}]
    content += [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": json.loads(call.text)}} for call in said.calls
    ]
    stop = "tool_use" if said.calls else "end_turn"
    used = {"inputTokens": said.input_tokens, "outputTokens": said.output_tokens}
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": {"length": "max_tokens", "refusal": "content_filtered"}.get(said.finish, stop),
        "usage": {**used, "totalTokens": said.input_tokens + said.output_tokens},
        "metrics": {"latencyMs": 1},
    }


_PROTOCOLS: dict[str, Callable[[Says, dict[str, Any]], dict[str, Any]]] = {
    "/v1/chat/completions": _chat_completion,
    "/v1/responses": _response,
    "/v1/messages": _message,
    "/v1beta/models/.*:generateContent": _gemini,
    "/model/.*/converse$": _converse,
}
