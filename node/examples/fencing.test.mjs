// Tests the fencing recipes with two holders, over real HTTP, in all interleavings.
//
// A resource counts updates. Each holder reads, adds one and writes. An update is lost if it was accepted and is
// missing in the final count. The negative controls run without a check, and with a check on writes only. They must
// lose updates, or the test could not find a lost one.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { test } from "node:test";
import { Redlock } from "redlock-core";
import { Server } from "../test/servers.mjs";
import * as http from "./fenced_http.mjs";
import * as store from "./fenced_store.mjs";

// ---- resources: counters from 0, with access by token and, for the controls, without --------------------------------

/** Serves until the test ends; returns the URL. */
async function serving(t, server) {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}`;
}

/** A stand-in for S3 and similar stores: conditional writes are atomic, and an etag is the MD5 of the content. */
function objectStore() {
  const objects = new Map();
  const etag = (content) => `"${createHash("md5").update(content).digest("hex")}"`;
  return createServer(async (request, response) => {
    const content = await text(request);
    const now = objects.get(request.url);
    const { "if-match": match, "if-none-match": none } = request.headers;
    if (request.method === "PUT") {
      const missed =
        (none === "*" && now !== undefined) || (match !== undefined && (now === undefined || match !== etag(now)));
      if (!missed) objects.set(request.url, content);
      response.writeHead(missed ? 412 : 200).end();
    } else if (now === undefined) response.writeHead(404).end();
    else response.writeHead(200, { ETag: etag(now) }).end(now);
  });
}

/** Makes objects of an object store. */
async function inStore(t) {
  const base = await serving(t, objectStore());
  return (name) => {
    const url = `${base}/${name}`;
    return {
      read: async (token) => (await store.access(url, token)) ?? 0,
      write: (token, value) => store.access(url, token, value),
      plainRead: async () => (await store.get(url)).content.value ?? 0,
      plainWrite: async (value) => {
        const { content } = await store.get(url);
        await fetch(url, { method: "PUT", body: JSON.stringify({ ...content, value }) });
      },
    };
  };
}

/** Makes documents of a service; the controls bypass the service. */
async function inService(t) {
  const documents = new Map();
  const base = await serving(t, http.service(documents));
  return (name) => {
    const [path, url] = [`/${name}`, `${base}/${name}`];
    const known = () => documents.get(path) ?? { fence: 0n, content: "0" };
    return {
      read: async (token) => Number(await http.access(url, token)),
      write: (token, value) => http.access(url, token, String(value)),
      plainRead: async () => Number(known().content),
      plainWrite: async (value) => documents.set(path, { ...known(), content: String(value) }),
    };
  };
}

const KINDS = { "object store": inStore, "HTTP service": inService };

const isOutdated = (error) => error instanceof http.Outdated || error instanceof store.Outdated;

// ---- rules: the accesses that have a token --------------------------------------------------------------------------

/** The rule of docs/fencing.md: every access has the token. */
const everyAccess = (it, token) => ({ read: () => it.read(token), write: (value) => it.write(token, value) });

/** A control: only writes have the token, which is often thought to suffice. */
const writesOnly = (it, token) => ({ read: it.plainRead, write: (value) => it.write(token, value) });

/** A control: the lock alone, without tokens. */
const noCheck = (it) => ({ read: it.plainRead, write: it.plainWrite });

/** Runs the steps of A, the earlier holder, and of B. Returns whether an update is lost, and the refused holders. */
async function play(resource, rule, order) {
  const holders = { A: rule(resource, 1n), B: rule(resource, 2n) };
  const seen = new Map();
  const refused = new Set();
  let accepted = 0;
  for (const who of order) {
    if (refused.has(who)) continue;
    try {
      if (seen.has(who)) {
        await holders[who].write(seen.get(who) + 1);
        accepted++;
      } else {
        seen.set(who, await holders[who].read());
      }
    } catch (error) {
      if (!isOutdated(error)) throw error;
      refused.add(who);
    }
  }
  return { lost: (await resource.plainRead()) !== accepted, refused };
}

const ORDERS = ["AABB", "ABAB", "ABBA", "BAAB", "BABA", "BBAA"];

for (const [kind, makers] of Object.entries(KINDS)) {
  test(`${kind}: every access fenced loses no update, writes only lose 2 of 6, no check loses 4`, async (t) => {
    const make = await makers(t);
    const expected = new Map([
      [everyAccess, []],
      [writesOnly, ["ABAB", "BAAB"]],
      [noCheck, ["ABAB", "ABBA", "BAAB", "BABA"]],
    ]);
    for (const [rule, losing] of expected) {
      const lost = [];
      for (const order of ORDERS) {
        const outcome = await play(make(`${rule.name}/${order}`), rule, order);
        if (outcome.lost) lost.push(order);
        assert(!outcome.refused.has("B"), "the newest holder is never refused");
        if (rule === everyAccess) assert.equal(outcome.refused.has("A"), order !== "AABB");
      }
      assert.deepEqual(lost, losing, rule.name);
    }
  });

  test(`${kind}: holders that all run at once lose nothing`, async (t) => {
    const resource = (await makers(t))("x");
    const tokens = Array.from({ length: 60 }, (_, index) => BigInt(index + 1));
    let accepted = 0;
    await Promise.all(
      tokens.map(async (token) => {
        try {
          await resource.write(token, (await resource.read(token)) + 1);
          accepted++;
        } catch (error) {
          if (!isOutdated(error)) throw error;
        }
      }),
    );
    assert(accepted > 0);
    assert.equal(await resource.read(61n), accepted);
  });

  test(`${kind}: a holder that writes after its lease, without a look, is refused`, async (t) => {
    const server = await Server.of(t);
    const client = new Redlock(server.url);
    const resource = (await makers(t))("x");
    const stale = await client.lock("x", { ttl: 200 }).acquire();
    const value = await resource.read(stale.token);
    const lease = await client.lock("x").acquire(); // waits until that one has ended
    const now = await resource.read(lease.token);
    await assert.rejects(() => resource.write(stale.token, value + 1), isOutdated);
    await resource.write(lease.token, now + 10);
    await lease.release();
    assert.equal(stale.held, false);
    assert.equal(await resource.plainRead(), 10);
    await client.close();
  });
}

test("the functions that show how a recipe is used", async (t) => {
  for (const [recipe, server] of /** @type {const} */ ([
    [http, http.service()],
    [store, objectStore()],
  ])) {
    const url = `${await serving(t, server)}/7`;
    await recipe.deposit(url, 30, 1_800_000_000_000_000n);
    await recipe.deposit(url, 12, 1_800_000_000_000_001n);
    await assert.rejects(() => recipe.deposit(url, 1, 999n), recipe.Outdated);
    assert.equal(Number(await recipe.access(url, 1_800_000_000_000_001n)), 42);
  }
});

test("the HTTP service demands a token, for reads too", async (t) => {
  const url = await serving(t, http.service());
  for (const headers of [{}, { "Fencing-Token": "" }, { "Fencing-Token": "-1" }, { "Fencing-Token": "1e9" }]) {
    for (const request of [{ headers }, { headers, method: "PUT", body: "1" }]) {
      assert.equal((await fetch(url, request)).status, 428);
    }
  }
  assert.equal(await http.access(url, 0n), "");
});
