// A thread that holds a lock, waits for a second one and, unless it is `idle`, uses a third one all the time. It sends
// "busy" to its parent.

import { Redlock } from "redlock-core";

export async function keepBusy({ url, index, idle = false }, say) {
  const client = new Redlock(url);
  const held = await client.acquire(`held ${index}`);
  held.signal.onabort = () => {};
  client.acquire("everybody").catch(() => {});
  say("busy");
  while (!idle) await client.using(`churn ${index}`, () => {});
}
