// This project's package. Its lease is the watchdog's, and it waits until it is told.

import { Redlock } from "redlock-core";

export const from = "redlock-core";

export async function connect(urls) {
  const client = new Redlock(urls);
  await client.ping();
  const locks = new Map();
  const lock = (name, owner) => {
    const key = owner === undefined ? name : `${owner} ${name}`;
    let found = locks.get(key);
    if (found === undefined) {
      found = client.lock(name, { owner, wait: 30_000 });
      locks.set(key, found);
    }
    return found;
  };
  return {
    acquire: (name, owner) => lock(name, owner).acquire(),
    release: (lease) => lease.release(),
    close: () => client.close(),
    reentrant: true,
    waits: true,
  };
}
