// The connections of those libraries that are given some: ioredis with its defaults.

import { once } from "node:events";
import { Redis } from "ioredis";
import { Unsupported } from "./unsupported.mjs";

/** A connection to each server, ready. */
export async function connections(urls) {
  const servers = urls.map((url) => new Redis(url));
  await Promise.all(servers.map((server) => once(server, "ready")));
  return servers;
}

/** A connection to the server, for what knows no quorum. */
export async function connection(urls) {
  if (urls.length > 1) throw new Unsupported("one server only");
  const [server] = await connections(urls);
  return server;
}

export async function close(servers) {
  await Promise.all(servers.map((server) => server.quit()));
}
