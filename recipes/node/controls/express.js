// The application of the recipe with a mistake, which CONTROL names.

import { Redlock } from "redlock-core";
import { createApp, lockErrors, locked } from "../express/app.js";

const client = new Redlock(process.env.REDLOCK_URL);
let using = client;

switch (process.env.CONTROL) {
  case "no lock":
    using = { using: (_name, _options, body) => body(new AbortController().signal, { token: 0n }) };
    break;
  case "no signal":
    using = { using: (name, { wait }, body) => client.using(name, { wait }, body) };
    break;
}
const app = createApp(using, process.env.SHOP_URL);

// A handler of the recipe that waits for a minute.
app.post(
  "/patient/:id",
  locked(
    using,
    ({ params }) => `order:${params.id}`,
    { wait: 60_000 },
    async ({ params }) => {
      await fetch(`${process.env.SHOP_URL}/orders/${params.id}/patient/charge`, { method: "POST" });
    },
  ),
);

// A middleware that releases at "finish", which does not come if the client goes away.
app.post("/finish/:id", async (request, response) => {
  const lease = await client.acquire(`order:${request.params.id}`);
  response.once("finish", () => lease.release());
  await fetch(`${process.env.SHOP_URL}/orders/${request.params.id}/charge`, { method: "POST" });
  response.json({});
});

app.use(lockErrors);

const server = app.listen(process.env.PORT);
if (process.env.CONTROL !== "no handler") process.once("SIGTERM", () => server.close(() => client.close()));
