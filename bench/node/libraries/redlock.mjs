// node-redlock 5. It retries every 200 ms, give or take 100, 10 times by default; here as often as 30 s allow.

import Redlock from "redlock";
import { close, connections } from "./ioredis.mjs";

export const from = "redlock";

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
