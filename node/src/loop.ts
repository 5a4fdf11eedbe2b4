/**
 * This event loop's side of the native module: the calls that wait for their end, and whether they keep the process
 * alive. Nothing of the user's runs while ends are handed out; promises see to that.
 *
 * @module
 */

// Captured here, before a test's fake timers replace the global ones.
import { clearInterval, setInterval } from "node:timers";
import { isMainThread } from "node:worker_threads";
import { onAbort } from "./abort";
import { failed, sync } from "./errors";
import { type Failure, type Id, type Loop, native, type Started } from "./native";

/** How a call ended. */
interface End {
  value: unknown;
  failure: Failure | undefined;
}

interface Waiting {
  resolve(end: End): void;
  /** Whether it lets the process exit. */
  background: boolean;
  /** Stops listening to the signal that would give it up. */
  unlisten?: () => void;
}

const waiting = new Map<Id, Waiting>();
/** How many calls keep the process alive, and the timer that does. */
let busy = 0;
let alive: NodeJS.Timeout | undefined;
const LONG = 2 ** 31 - 1;
/** Whether calls wait for the end of what runs now. */
let unsent = false;

// Made with the module, not with its first use: it keeps the async context it is made in, which might be a request's.
// The native module does not keep `take` alive, so the calls do.
/** The calls of this event loop. */
export const calls: Loop = Object.assign(new native.Loop(take), { take });
// A worker thread's clients are closed by the native module when the thread ends, in whatever way.
if (isMainThread) native.Loop.closeAtExit();

function take(all: unknown[]): void {
  for (let at = 0; at < all.length; at += 3) {
    finish(all[at] as Id)?.resolve(ended(all[at + 1], all[at + 2] as Failure | null | undefined));
  }
}

function ended(value: unknown, failure: Failure | null | undefined): End {
  return { value, failure: failure ?? undefined };
}

function flush(): void {
  unsent = false;
  calls.flush();
}

function begin(id: Id, call: Waiting): void {
  waiting.set(id, call);
  if (!call.background && busy++ === 0) {
    alive = setInterval(() => {}, LONG);
  }
}

function finish(id: Id): Waiting | undefined {
  const call = waiting.get(id);
  if (call === undefined) return undefined;
  waiting.delete(id);
  if (!call.background && --busy === 0) {
    clearInterval(alive);
  }
  call.unlisten?.();
  return call;
}

/**
 * Makes a call and waits for its value. When the signal is aborted before that came, the call is given up and rejects
 * with the signal's reason.
 */
export async function call<T>(start: (loop: Loop) => Started, signal?: AbortSignal): Promise<T> {
  signal?.throwIfAborted();
  const started = sync(() => start(calls));
  const { value, failure } = typeof started === "number" ? await end(started, signal) : ended(started[0], started[1]);
  // Made here, in what the caller awaits, so that its stack has the caller's lines.
  if (failure !== undefined) throw failed(failure);
  return value as T;
}

function end(id: Id, signal?: AbortSignal): Promise<End> {
  if (busy > 0 && !unsent) {
    // Calls that are made together are sent together. One that is alone was sent at once.
    unsent = true;
    queueMicrotask(flush);
  }
  return new Promise<End>((resolve, reject) => {
    const call: Waiting = { resolve, background: false };
    begin(id, call);
    if (signal !== undefined) {
      call.unlisten = onAbort(signal, () => {
        // What was drained is on its way to the caller.
        if (!calls.abandon(id)) return;
        finish(id);
        reject(signal.reason);
      });
    }
  });
}

/**
 * Makes a call that lets the process exit meanwhile; its value, or undefined if it fails. Never rejects, and keeps
 * nothing of what it was called with: that may be collected.
 */
export function watch<T>(start: (loop: Loop) => Id): Promise<T | undefined> {
  try {
    return value(start(calls));
  } catch {
    return Promise.resolve(undefined);
  }
}

async function value<T>(id: Id): Promise<T | undefined> {
  const { value } = await new Promise<End>((resolve) => begin(id, { resolve, background: true }));
  return value as T | undefined;
}
