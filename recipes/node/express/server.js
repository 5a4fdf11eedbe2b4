// Starts the recipe for Express: node express/server.js

// --8<-- [start:server]
import { Redlock } from "redlock-core";
import { createApp } from "./app.js";

const client = new Redlock(process.env.REDLOCK_URL.split(",")); // one for the process
const server = createApp(client, process.env.SHOP_URL).listen(process.env.PORT);

// Without a handler SIGTERM ends the process at once, and its locks stay until their leases end.
process.once("SIGTERM", () => {
  server.close(() => client.close()); // requests that are under way end first
});
