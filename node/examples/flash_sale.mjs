// A flash sale: one console, many customers. A customer reserves it, and no other can buy during the time to pay.
//
//     node flash_sale.mjs [redis-url]
//
// The environment variable TIME_TO_PAY is the time in seconds that a customer has; 4 by default.
//
// The reservation is a lock with an explicit owner, the customer, and a fixed ttl, the time to pay:
//
// - The web server acquires it, and its process may end: fixed leases of explicit owners outlive their process.
// - The payment service is another process. It releases by the customer's name alone: lock(…, { owner }).release().
// - If the payment fails, the item is back on sale at once; if the bank never answers, when the ttl ends.
//
// The lock says who may buy now. The shop's database has the buyer, and the largest token of all reservations so far.
// If the bank answers after the ttl, its token may be older than that. Then the sale is refused, even if the item is
// still unsold, and the money goes back.

import { fork } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { configure, LockTimeout, lock, NotHeld } from "redlock-core";
import { Database } from "./database.mjs";

const ITEM = "console";
const TIME_TO_PAY = Number(process.env.TIME_TO_PAY ?? 4) * 1000;

/** The lock that all services use. */
function reservation(customer, wait = 0) {
  return lock(`flash-sale:${ITEM}`, { owner: customer, ttl: TIME_TO_PAY, wait });
}

// ---- the web server: reserves ---------------------------------------------------------------------------------------

/** Reserves the item; returns the reservation's token, or undefined. Its process then ends, as in a deployment. */
async function reserve(shop, customer, wait) {
  let lease;
  try {
    lease = await reservation(customer, wait).acquire();
  } catch (error) {
    if (!(error instanceof LockTimeout)) throw error;
    say("web", `sorry ${customer}, somebody else is paying right now`);
    return undefined;
  }
  // The first access of each tenure registers its token. From then on no older reservation can buy.
  const forSale = await shop.transaction((item) => {
    if (item.buyer !== undefined || BigInt(item.fence) > lease.token) return false;
    item.fence = String(lease.token);
    return true;
  });
  if (forSale) {
    say("web", `${customer} has ${TIME_TO_PAY / 1000} s to pay`);
    return String(lease.token);
  }
  say("web", `sorry ${customer}, it is sold to ${shop.read().buyer}`);
  await lease.release();
  return undefined;
}

// ---- the payment service: sells, or gives back ----------------------------------------------------------------------

/** Handles the bank's answer. The token went to the bank and back, as a reference of the payment. */
async function settle(shop, customer, token, accepted) {
  if (accepted) {
    const sold = await shop.transaction((item) => {
      if (item.buyer !== undefined || item.fence !== token) return false;
      item.buyer = customer;
      return true;
    });
    if (!sold) {
      // The reservation expired. Do not release: the customer may have a new one, with another token.
      say("payments", `${customer} paid too late, and gets the money back`);
      return;
    }
    say("payments", `${customer} paid: sold`);
  } else {
    say("payments", `${customer}'s card was declined: back on sale`);
  }
  try {
    await reservation(customer).release();
  } catch (error) {
    if (!(error instanceof NotHeld)) throw error;
    say("payments", `${customer}'s reservation had ended meanwhile`);
  }
}

// ---- the demonstration ----------------------------------------------------------------------------------------------

function say(who, what) {
  console.log(`${who.padStart(8)}: ${what}`);
}

/** Runs one step in a process of its own, as on another machine; returns its answer. */
async function machine(...step) {
  const child = fork(fileURLToPath(import.meta.url), step.map(String));
  /** @type {any} */
  let answer;
  child.once("message", (message) => {
    answer = message;
  });
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${step} ended with ${code}`);
  return answer;
}

/** Four customers want the same console. */
async function main(url) {
  const folder = mkdtempSync(join(tmpdir(), "flash-sale-"));
  try {
    const file = join(folder, "shop.json");
    const shop = new Database(file);
    await shop.transaction((item) => Object.assign(item, { fence: "0" }));
    const web = async (customer, wait = 0) => (await machine("web", url, file, customer, wait)).token;
    const payments = (customer, token, accepted) => machine("payments", url, file, customer, token, accepted);

    const ann = await web("ann");
    await web("bob");
    await payments("ann", ann, false);
    const bob = await web("bob");
    say("bank", "no answer about bob's card");
    const carl = await web("carl", 3 * TIME_TO_PAY); // waits until bob's time is over
    say("bank", "bob's card was accepted after all");
    await payments("bob", bob, true);
    await payments("carl", carl, true);
    await web("dora");
    console.log(`sold to ${shop.read().buyer}, once`);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const [first = "", url, file, customer, ...rest] = process.argv.slice(2);
if (process.send === undefined || file === undefined) {
  await main(first);
} else {
  configure(url || undefined);
  const shop = new Database(file);
  if (first === "web") process.send({ token: await reserve(shop, customer, Number(rest[0])) });
  else await settle(shop, customer, rest[0], rest[1] === "true");
  process.disconnect();
}
