// This project's package. The watchdog renews its leases, and a message wakes its waiters.

import { Redlock } from "redlock-core";

export const from = "redlock-core";

export async function connect(urls) {
  const tokenTtl = process.env.BENCH_TOKEN_TTL && Number(process.env.BENCH_TOKEN_TTL) * 1000;
  const client = new Redlock(urls, { tokenTtl });
  await client.ping();
  const locks = new Map();
  const lock = (name, owner) => {
    const key = owner === undefined ? name : `${owner} ${name}`;
    let found = locks.get(key);
    if (found === undefined) {
      found = client.lock(name, { owner });
      locks.set(key, found);
    }
    return found;
  };
  const kinds = new Map();
  const make = (kind, name) =>
    kind === "semaphore" ? client.semaphore(name, { permits: 10 }) : client.readWriteLock(name)[kind];
  const lockOf = (kind, name) => {
    const key = `${kind} ${name}`;
    let found = kinds.get(key);
    if (found === undefined) {
      found = make(kind, name);
      kinds.set(key, found);
    }
    return found;
  };
  return {
    acquire: (name, owner) => lock(name, owner).acquire(),
    acquireKind: (kind, name) => lockOf(kind, name).acquire(),
    kinds: ["read", "write", "semaphore"],
    release: (lease) => lease.release(),
    block: (name) => client.lock(name).using(async () => {}),
    newLock: (name) => client.lock(name),
    close: () => client.close(),
    reentrant: true,
    waits: true,
  };
}
