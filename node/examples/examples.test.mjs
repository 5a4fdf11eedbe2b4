// Runs each example as a reader would, on a server of its own, and checks its output and the keys that it leaves.

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Server } from "../test/servers.mjs";

/** Runs an example to its end; returns the lines that it prints. Calls `see` with the output as it comes. */
async function run(example, server, { env = {}, see = (_) => {} } = {}) {
  const file = join(dirname(fileURLToPath(import.meta.url)), example);
  const options = { timeout: 600_000, env: { ...process.env, ...env } };
  const running = promisify(execFile)(process.execPath, [file, server.url], options);
  running.child.stdout.on("data", see);
  const { stdout, stderr } = await running;
  assert.equal(stderr, "");
  return stdout.trim().split("\n");
}

test("flash sale: sold once, to whoever had the reservation when the money came", async (t) => {
  const server = await Server.of(t);
  // TIME_TO_PAY is long enough for any machine. Bob's time is ended here instead, when the bank does not answer.
  const see = (text) => {
    if (text.includes("no answer")) server.cli("PEXPIRE", "flash-sale:console", 1);
  };
  const lines = await run("flash_sale.mjs", server, { env: { TIME_TO_PAY: "300" }, see });
  assert.deepEqual(
    lines.map((line) => line.trim()),
    [
      "web: ann has 300 s to pay",
      "web: sorry bob, somebody else is paying right now",
      "payments: ann's card was declined: back on sale",
      "web: bob has 300 s to pay",
      "bank: no answer about bob's card",
      "web: carl has 300 s to pay",
      "bank: bob's card was accepted after all",
      "payments: bob paid too late, and gets the money back",
      "payments: carl paid: sold",
      "web: sorry dora, it is sold to carl",
      "sold to carl, once",
    ],
  );
  assert.deepEqual(server.locks(), []);
  assert.equal(server.cli("EXISTS", "redlock_token:{flash-sale:console}"), "1");
});

test("scheduler: each tick is done once, also those whose worker died or hung", async (t) => {
  const server = await Server.of(t);
  const lines = await run("scheduler.mjs", server);
  const found = (pattern) => lines.map((line) => pattern.exec(line)).filter((match) => match !== null);
  assert.deepEqual(
    found(/^worker \d has done tick (\d)$/).map(([, tick]) => Number(tick)),
    [1, 2, 3, 4, 5, 6],
  );
  const ticks = found(/^tick (\d): attempts (\d+), reports (\d)$/).map((match) => match.slice(1).map(Number));
  assert.deepEqual(
    ticks.map(([tick, , reports]) => [tick, reports]),
    [1, 2, 3, 4, 5, 6].map((tick) => [tick, 1]),
  );
  assert(ticks[1][1] > 1, "the first worker of tick 2 died");
  assert(ticks[3][1] > 1, "the first worker of tick 4 hung");
  const [[, dead]] = found(/^worker (\d) dies$/);
  const [[, hung]] = found(/^worker (\d) hangs$/);
  assert(lines.includes(`worker ${hung} comes too late for tick 4: its write is refused`));
  const after = lines.slice(lines.indexOf(`worker ${dead} dies`) + 1);
  assert(!after.some((line) => line.startsWith(`worker ${dead} `)));
  assert.deepEqual(server.locks(), []);
  assert.equal(server.cli("EXISTS", "redlock_token:{scheduler:report}"), "1");
});

test("job queue: all jobs run, and no licence is used twice at the same time", async (t) => {
  const server = await Server.of(t);
  const lines = await run("job_queue.mjs", server);
  const ran = lines.map((line) => /^worker \d ran job (\d+) with licence (\d)$/.exec(line)).filter(Boolean);
  assert.deepEqual(
    ran.map(([, job]) => Number(job)).sort((a, b) => a - b),
    Array.from({ length: 12 }, (_, index) => index + 1),
  );
  assert.deepEqual(new Set(ran.map(([, , licence]) => licence)), new Set(["0", "1", "2"]));
  assert.equal(lines.at(-1), "12 jobs, 3 at once at most");
  assert.deepEqual(server.locks(), []);
  assert.equal(server.cli("HLEN", "redlock_slot_tokens:{renderer:licences}"), "3");
});

test("shared cache: each version is rebuilt by one reader, and no reader sees half of it", async (t) => {
  const server = await Server.of(t);
  assert.deepEqual(await run("shared_cache.mjs", server), [
    "rebuilt: 1, 2, 3",
    "24 reads by 8 readers, all of them whole",
  ]);
  assert.deepEqual(server.locks(), []);
  assert.equal(server.cli("EXISTS", "redlock_token:{prices:cache}"), "1");
});
