"""The application of the recipe with its mistakes, and with a task that holds a lock until the process ends."""

import asyncio
import contextlib
import os

import redlock.asyncio
from fastapi import Request

import fastapi_app
from fastapi_app import app

tasks = []


async def hold(locks):
    async with locks.lock("held"):
        await asyncio.Event().wait()


@app.post("/hold")
async def start_holding(request: Request):
    """Hold a lock in a task. It ends with the loop, and not before."""
    tasks.append(asyncio.create_task(hold(request.app.state.locks)))


class NoLocks:
    """In place of a client: excludes nobody."""

    def lock(self, name, **options):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    def check(self):
        pass

    token = 0


@contextlib.asynccontextmanager
async def never_closed(_):
    app.state.locks = redlock.asyncio.Redlock(os.environ["REDLOCK_URL"])
    yield


match os.environ.get("CONTROL"):
    case "no locks":
        app.dependency_overrides[fastapi_app.get_locks] = NoLocks
    case "never closed":
        app.router.lifespan_context = never_closed
