"""The recipe for FastAPI: an endpoint that pays an order once, and a client that lives as long as the application."""

# --8<-- [start:app]
import os
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import redlock.asyncio
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse


@asynccontextmanager
async def lifespan(app: FastAPI):
    urls = os.environ["REDLOCK_URL"].split(",")
    # The end of the block releases what is still held. uvicorn ends a worker by a signal, so no exit handler does that.
    async with redlock.asyncio.Redlock(urls) as locks, httpx.AsyncClient(base_url=os.environ["SHOP_URL"]) as shop:
        app.state.locks, app.state.shop = locks, shop
        yield


app = FastAPI(lifespan=lifespan)


@app.exception_handler(redlock.LockTimeout)
async def busy(request: Request, error: redlock.LockTimeout) -> JSONResponse:
    return JSONResponse({"detail": "busy"}, 409, {"Retry-After": "2"})


@app.exception_handler(redlock.Unavailable)
@app.exception_handler(redlock.LockLost)
async def unavailable(request: Request, error: redlock.Unavailable | redlock.LockLost) -> JSONResponse:
    return JSONResponse({"detail": "no locks"}, 503, {"Retry-After": "5"})


def get_locks(request: Request) -> redlock.asyncio.Redlock:
    return request.app.state.locks


def get_shop(request: Request) -> httpx.AsyncClient:
    return request.app.state.shop


@app.post("/orders/{order_id}/pay")
async def pay(
    order_id: int,
    locks: Annotated[redlock.asyncio.Redlock, Depends(get_locks)],
    shop: Annotated[httpx.AsyncClient, Depends(get_shop)],
) -> dict[str, bool]:
    # In the endpoint, not in a dependency: those end after the reply was sent, and their errors come too late.
    async with locks.lock(f"order:{order_id}", wait=2) as lease:
        order = (await shop.get(f"/orders/{order_id}")).raise_for_status().json()  # read after the acquire
        if not order["paid"]:
            lease.check()  # raises LockLost after a loss
            headers = {"Idempotency-Key": f"order-{order_id}", "Fencing-Token": str(lease.token)}
            (await shop.post(f"/orders/{order_id}/charge", headers=headers, timeout=30)).raise_for_status()
    return {"paid": True}
