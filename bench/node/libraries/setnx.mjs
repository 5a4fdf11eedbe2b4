// The smallest lock there is: `SET NX PX`, and a script that deletes the key if it has the own value.

import { randomUUID } from "node:crypto";
import { close, connection } from "./ioredis.mjs";

export const from = "ioredis";

const RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

export async function connect(urls) {
  const server = await connection(urls);
  return {
    async acquire(name) {
      const value = randomUUID();
      if ((await server.set(name, value, "PX", 10_000, "NX")) !== "OK") throw new Error("not granted");
      return { name, value };
    },
    async release({ name, value }) {
      if ((await server.eval(RELEASE, 1, name, value)) !== 1) throw new Error("not released");
    },
    close: () => close([server]),
    reentrant: false,
    waits: false,
  };
}
