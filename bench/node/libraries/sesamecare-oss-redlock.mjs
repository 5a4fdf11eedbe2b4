// The maintained fork of node-redlock, with its defaults: every 200 ms, give or take 100, for 30 s.

import { Redlock } from "@sesamecare-oss/redlock";
import { close, connections } from "./ioredis.mjs";

export const from = "@sesamecare-oss/redlock";

export async function connect(urls) {
  const servers = await connections(urls);
  const redlock = new Redlock(servers);
  return {
    acquire: (name) => redlock.acquire([name], 10_000, { retryCount: 150 }),
    release: (lock) => lock.release(),
    close: () => close(servers),
    reentrant: false,
    waits: true,
  };
}
