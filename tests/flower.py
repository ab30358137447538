"""Flower as a test's own process, and what it answers to whoever has its password and to whoever has not."""

from __future__ import annotations

import base64
import http.client
import json
import secrets
from typing import Any
from urllib.parse import quote, urlencode

from tests.servers.daemon import free_port
from tests.waiting import wait_until

COLUMNS = ("name", "kwargs", "state", "result", "worker", "received", "runtime")
"""What its page of tasks shows of each."""

_ASKED = frozenset({"stats", "active_queues", "registered", "scheduled", "active", "reserved", "revoked", "conf"})


class Flower:
    """Where it will listen, and the password that it is to ask for: both go into its environment."""

    def __init__(self) -> None:
        self.port = free_port()
        self._password = secrets.token_urlsafe(12)

    @property
    def environment(self) -> dict[str, str]:
        """What it is told."""
        return {"FLOWER_BASIC_AUTH": f"ann:{self._password}", "FLOWER_PORT": str(self.port)}

    @property
    def password(self) -> str:
        """Ann's, which no page is to show."""
        return self._password

    def ask(self, path: str, *, method: str = "GET", password: str | None = "") -> tuple[int | None, str]:
        """Status and body; the right password unless another one, or None for none at all, is given.

        No status is no answer.
        """
        headers = {}
        if password is not None:
            token = base64.b64encode(f"ann:{password or self._password}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")
        except OSError:
            return None, ""
        finally:
            connection.close()

    def page(self, path: str) -> str:
        """A page, which has to be there."""
        status, body = self.ask(path)
        assert status == 200, f"{path}: {status}\n{body[:2000]}"
        return body

    def api(self, path: str) -> Any:
        """An answer of its API, read."""
        return json.loads(self.page(path))

    def tasks(self) -> dict[str, dict[str, Any]]:
        """All tasks that it knows, by their ids, as its API tells them."""
        found: dict[str, dict[str, Any]] = self.api("/api/tasks?limit=100000")
        return found

    def rows(self, search: str = "") -> list[dict[str, Any]]:
        """The rows of the page of tasks, which its script asks for, newest first."""
        asked = {"draw": 1, "start": 0, "length": 1000, "search[value]": search}
        asked |= {"order[0][column]": 0, "order[0][dir]": "desc", "columns[0][data]": "received"}
        rows: list[dict[str, Any]] = self.api(f"/tasks/datatable?{urlencode(asked)}")["data"]
        return rows

    def everything(self) -> dict[str, str]:
        """All that it has to show, by path: its pages, its API, its metrics."""
        workers = [row["hostname"] for row in self.api("/workers?json=true")["data"]]
        for name in workers:
            wait_until(lambda name=name: self._has_asked(name), within=60, what=f"{name} to have answered Flower")
        tasks = list(self.tasks())
        paths = ["/", "/workers?json=true", "/tasks", "/broker", "/metrics", "/healthcheck"]
        paths += ["/api/tasks?limit=100000", "/api/task/types", "/api/queues/length"]
        paths += [f"/api/workers?refresh=true&workername={quote(name)}" for name in workers]
        paths += [f"/worker/{quote(name)}" for name in workers]
        paths += [where for task in tasks for where in (f"/task/{task}", f"/api/task/info/{task}")]
        return {"/tasks/datatable": json.dumps(self.rows()), **{path: self.page(path) for path in paths}}

    def _has_asked(self, worker: str) -> bool:
        """Whether it has all that it asks of a worker; it waits a second for each answer, and does without."""
        status, body = self.ask(f"/api/workers?refresh=true&workername={quote(worker)}")
        return status == 200 and json.loads(body)[worker].keys() >= _ASKED
