// The common interface of node-redlock 5 and its fork. By default both try 10 times, every 200 ms, plus or minus 100;
// here as often as fits into 30 s.

import { close, connections } from "./ioredis.mjs";

export const connectWith = (Redlock) => async (urls) => {
  const servers = await connections(urls);
  const redlock = new Redlock(servers, { retryCount: 150 });
  return {
    acquire: (name) => redlock.acquire([name], 10_000),
    release: (lock) => lock.release(),
    block: (name) => redlock.using([name], 10_000, async () => {}),
    close: () => close(servers),
    reentrant: false,
    waits: true,
  };
};
