// What node-redlock 5 and its fork have in common: their interface. Both retry every 200 ms, give or take 100; here as
// often as 30 s allow.

import { close, connections } from "./ioredis.mjs";

export const connectWith = (Redlock) => async (urls) => {
  const servers = await connections(urls);
  const redlock = new Redlock(servers);
  return {
    acquire: (name) => redlock.acquire([name], 10_000, { retryCount: 150 }),
    release: (lock) => lock.release(),
    close: () => close(servers),
    reentrant: false,
    waits: true,
  };
};
