// What node-redlock 5 and its fork have in common: their interface. Both try 10 times by default, every 200 ms, give or take
// 100; here as often as 30 s allow.

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
