// Tests of the recipe for NestJS: one process for each replica.

import assert from "node:assert/strict";
import { test } from "node:test";
import { eventually, freePort, post, shopOf } from "./tools.mjs";

const shop = shopOf("nest/dist/main.js", "controls/nest.js");

test("an order is paid once", async (t) => {
  const { server, service, start } = await shop(t);
  const [here, there] = await Promise.all([start(), start()]);
  const first = post(`${here.url}/orders/1/pay`);
  const charge = await service.next();
  const second = post(`${there.url}/orders/1/pay`);
  await eventually(() => server.listeners("order:1") > 0);
  charge.answer();
  assert.deepEqual([await first.ended, await second.ended], [201, 201]);
  assert.deepEqual([service.paid, service.arrived], [["/orders/1"], []]);
  assert(BigInt(charge.headers["fencing-token"]) > 0n);
  assert.deepEqual(server.locks(), []);
});

test("control: if the interceptor does not subscribe, the handler runs without the lock", async (t) => {
  const { service, start } = await shop(t, { control: "not subscribed" });
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
  assert.equal(await first.ended, 201);
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

test("a client that goes away ends its wait, and no error is logged", async (t) => {
  const { server, service, start } = await shop(t, { control: "none" });
  const [here, there] = await Promise.all([start(), start()]);
  const first = post(`${here.url}/orders/1/pay`);
  const charge = await service.next();
  const second = post(`${there.url}/orders/1/patient`); // its wait is a minute
  await eventually(() => server.listeners("order:1") === 1);
  second.leave();
  await eventually(() => server.listeners("order:1") === 0);
  charge.answer();
  assert.equal(await first.ended, 201);
  assert.equal(there.output, "");
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
  assert.equal(await paying.ended, 201);
  await program.ended;
  assert.deepEqual(server.locks(), []);
});

test("control: onModuleDestroy() takes the lock from a request that is under way", async (t) => {
  const { server, service, start } = await shop(t, { control: "closed too early" });
  const program = await start();
  post(`${program.url}/orders/1/pay`);
  await service.next();
  program.child.kill("SIGTERM");
  await eventually(() => server.locks().length === 0); // and the charge is still under way
});

test("control: without shutdown hooks a lock stays", async (t) => {
  const { server, service, start } = await shop(t, { control: "no hooks" });
  const program = await start();
  post(`${program.url}/orders/1/pay`);
  await service.next();
  program.child.kill("SIGTERM");
  assert.equal(await program.ended, "SIGTERM");
  assert.deepEqual(server.locks(), ["order:1"]);
});
