// Tests of the recipe for Express: one process for each replica.

import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, freePort, post, shopOf } from "./tools.mjs";

const shop = shopOf("express/server.js", "controls/express.js");

test("an order is paid once", async (t) => {
  const { server, service, start } = await shop(t);
  const [here, there] = await Promise.all([start(), start()]);
  const first = post(`${here.url}/orders/1/pay`);
  const charge = await service.next();
  const second = post(`${there.url}/orders/1/pay`);
  await eventually(() => server.listeners("order:1") > 0);
  charge.answer();
  assert.deepEqual([await first.ended, await second.ended], [200, 200]);
  assert.deepEqual([service.paid, service.arrived], [["/orders/1"], []]);
  assert(BigInt(charge.headers["fencing-token"]) > 0n);
  assert.deepEqual(server.locks(), []);
});

test("control: without a lock an order is paid twice", async (t) => {
  const { service, start } = await shop(t, { control: "no lock" });
  const { url } = await start();
  post(`${url}/orders/1/pay`);
  await service.next();
  post(`${url}/orders/1/pay`);
  assert.equal((await service.next()).path, "/orders/1/charge");
});

test("a request does not hang", async (t) => {
  const { service, start } = await shop(t);
  const { url } = await start();
  const first = post(`${url}/orders/1/pay`);
  const charge = await service.next();
  assert.equal(await post(`${url}/orders/1/pay`).ended, 409);
  charge.answer();
  assert.equal(await first.ended, 200);
});

test("a loss is answered", async (t) => {
  const { server, service, start } = await shop(t);
  const { url } = await start();
  const paying = post(`${url}/orders/1/pay`);
  const charge = await service.next();
  server.cli("DEL", "order:1");
  charge.answer();
  assert.equal(await paying.ended, 503);
});

test("an outage is answered", async (t) => {
  const { start } = await shop(t, { REDLOCK_URL: `redis://127.0.0.1:${await freePort()}` });
  const { url } = await start();
  assert.equal(await post(`${url}/orders/1/pay`).ended, 503);
});

for (const [name, control] of [
  ["a client that goes away ends its wait", "none"],
  ["control: without the signal, the wait of a client that goes away goes on", "no signal"],
]) {
  test(name, async (t) => {
    const { server, service, start } = await shop(t, { control });
    const [here, there] = await Promise.all([start(), start()]);
    const first = post(`${here.url}/orders/1/pay`);
    const charge = await service.next();
    const second = post(`${there.url}/patient/1`); // its wait is a minute
    await eventually(() => server.listeners("order:1") === 1);
    second.leave();
    await second.ended;
    if (control === "none") await eventually(() => server.listeners("order:1") === 0);
    charge.answer();
    assert.equal(await first.ended, 200);
    if (control === "none") assert.equal(there.output, "");
    // Work for nobody: it gets the lock.
    else assert.equal((await service.next()).path, "/orders/1/patient/charge");
  });
}

test("a client that goes away does not end the work, and leaves no lock behind", async (t) => {
  const { server, service, start } = await shop(t);
  const { url } = await start();
  const paying = post(`${url}/orders/1/pay`);
  const charge = await service.next();
  paying.leave();
  await paying.ended;
  charge.answer();
  await eventually(() => server.locks().length === 0);
  assert.deepEqual(service.paid, ["/orders/1"]);
});

test("control: a release at the end of the response does not come if the client goes away", async (t) => {
  const { server, service, start } = await shop(t, { control: "finish" });
  const { url } = await start();
  const paying = post(`${url}/finish/1`);
  const charge = await service.next();
  paying.leave();
  await paying.ended;
  charge.answer();
  assert.equal(await post(`${url}/orders/1/pay`).ended, 409);
  assert.deepEqual(server.locks(), ["order:1"]);
});

test("SIGTERM lets requests end, and releases", async (t) => {
  const { server, service, start } = await shop(t);
  const program = await start();
  const paying = post(`${program.url}/orders/1/pay`);
  const charge = await service.next();
  program.child.kill("SIGTERM");
  await eventually(async () => (await post(program.url).ended) === undefined); // it accepts nothing more
  assert.deepEqual(server.locks(), ["order:1"]);
  charge.answer();
  assert.equal(await paying.ended, 200);
  assert.equal(await program.ended, 0);
  assert.deepEqual(server.locks(), []);
});

test("control: without a handler of SIGTERM a lock stays", async (t) => {
  const { server, service, start } = await shop(t, { control: "no handler" });
  const program = await start();
  post(`${program.url}/orders/1/pay`);
  await service.next();
  program.child.kill("SIGTERM");
  assert.equal(await program.ended, "SIGTERM");
  assert.deepEqual(server.locks(), ["order:1"]);
});
