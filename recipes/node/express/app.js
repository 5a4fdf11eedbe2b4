// The recipe for Express: a handler that runs under a lock, and neither hangs nor pays an order twice.

// --8<-- [start:app]
import express from "express";
import { LockLost, LockTimeout, Unavailable } from "redlock-core";

/** A handler whose `work` runs under a lock. The result of `work` is the reply, sent after the release. */
export function locked(client, name, options, work) {
  return async (request, response) => {
    // The "close" of the response. The request has one, too, but it comes as soon as the body was read.
    const gone = new AbortController();
    response.once("close", () => gone.abort());
    // A client that goes away ends the wait, not the work. `lost` is aborted when the lock is lost.
    const result = await client.using(name(request), { ...options, signal: gone.signal }, (lost, lease) =>
      work(request, lost, lease),
    );
    response.json(result);
  };
}

/** Express 5 passes the rejection of a handler to here. Express 4 does not: catch it there, and call next(error). */
export function lockErrors(error, _request, response, next) {
  if (response.destroyed) return; // the client has gone away
  if (error instanceof LockTimeout) response.status(409).set("Retry-After", "2").json({ error: "busy" });
  else if (error instanceof Unavailable || error instanceof LockLost)
    response.status(503).set("Retry-After", "5").json({ error: "no locks" });
  else next(error);
}

export function createApp(client, shop) {
  const app = express();
  app.use(express.json());

  app.post(
    "/orders/:id/pay",
    locked(
      client,
      ({ params }) => `order:${params.id}`,
      { wait: 2_000 },
      async ({ params }, lost, lease) => {
        const order = await (await fetch(`${shop}/orders/${params.id}`, { signal: lost })).json(); // after the acquire
        if (!order.paid) {
          const headers = { "Idempotency-Key": `order-${params.id}`, "Fencing-Token": String(lease.token) };
          const reply = await fetch(`${shop}/orders/${params.id}/charge`, { method: "POST", headers, signal: lost });
          if (!reply.ok) throw new Error(`the charge failed: ${reply.status}`);
        }
        return { paid: true };
      },
    ),
  );

  app.use(lockErrors);
  return app;
}
