// Connections for the libraries that take them from their caller: ioredis with its defaults.

import { once } from "node:events";
import { Redis } from "ioredis";
import { Unsupported } from "./unsupported.mjs";

/** Connects to each server, and waits until the connections are ready. */
export async function connections(urls) {
  const servers = urls.map((url) => new Redis(url));
  await Promise.all(servers.map((server) => once(server, "ready")));
  return servers;
}

/** Connects to the one server, for a library without quorums. */
export async function connection(urls) {
  if (urls.length > 1) throw new Unsupported("one server only");
  const [server] = await connections(urls);
  return server;
}

export async function close(servers) {
  await Promise.all(servers.map((server) => server.quit()));
}
