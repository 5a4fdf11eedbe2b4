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
import { type Failure, type Id, isNode, type Loop, native, type Started } from "./native";

/** A call that waits for its end. */
interface Waiting {
  /** What is done at its end. */
  end(value: unknown, failure: Failure | null | undefined): void;
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
const loop = new native.Loop(take, isNode);
/** The calls of this event loop. */
export const calls: Loop = Object.assign(loop, loop.starters(), { take });
// A worker thread's clients are closed by the native module when the thread ends, in whatever way.
// To Deno every thread is a main thread.
if (isMainThread && !("WorkerGlobalScope" in globalThis)) native.Loop.closeAtExit();

function take(...all: unknown[]): void {
  for (let at = 0; at < all.length; at += 3) {
    finish(all[at] as Id)?.end(all[at + 1], all[at + 2] as Failure | null | undefined);
  }
}

function flush(): void {
  unsent = false;
  calls.flush();
}

function begin(id: Id, call: Waiting): void {
  waiting.set(id, call);
  if (call.background) return;
  if (busy++ === 0) {
    alive = setInterval(() => {}, LONG);
  } else if (!unsent) {
    // Calls that are made together are sent together. One that is alone was sent at once.
    unsent = true;
    queueMicrotask(flush);
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
 * Makes a call; resolves with its value, or with what is `made` of it. When the signal is aborted before that came, the
 * call is given up and rejects with the signal's reason.
 */
export function call<T>(start: (loop: Loop) => Started, signal?: AbortSignal): Promise<T>;
export function call<T, Value>(
  start: (loop: Loop) => Started,
  signal: AbortSignal | undefined,
  made: (value: Value) => T,
): Promise<T>;
export function call(
  start: (loop: Loop) => Started,
  signal?: AbortSignal,
  made?: (value: unknown) => unknown,
): Promise<unknown> {
  // Not an async function: each would cost two more turns of the microtasks. What is thrown in here rejects.
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const end = (value: unknown, failure: Failure | null | undefined) => {
      if (failure != null) resolve(failing(failure));
      else resolve(made === undefined ? value : made(value));
    };
    const started = sync(() => start(calls));
    if (typeof started !== "number") return end(started[0], started[1]);
    const call: Waiting = { end, background: false };
    begin(started, call);
    if (signal !== undefined) {
      call.unlisten = onAbort(signal, () => {
        // What was drained is on its way to the caller.
        if (!calls.abandon(started)) return;
        finish(started);
        reject(signal.reason);
      });
    }
  });
}

/**
 * Fails once the promise that is resolved with this waits for it, which takes two turns of the microtasks. Only then does
 * the engine know who awaits that promise, and writes its lines into the stack of the error.
 */
async function failing(failure: Failure): Promise<never> {
  await undefined;
  await undefined;
  throw failed(failure);
}

/** The promise of a function that makes one; what it throws rejects. */
export function rejecting<T>(make: () => Promise<T>): Promise<T> {
  try {
    return make();
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Makes a call that lets the process exit meanwhile; tells its value, or undefined if it fails. */
export function watch(start: (loop: Loop) => Id, tell: (value: unknown) => void): void {
  inBackground(start).then(tell, () => tell(undefined));
}

/** A function of its own, so that nothing but the native call refers to `start`: what it was made with may be collected. */
function inBackground(start: (loop: Loop) => Id): Promise<unknown> {
  return new Promise((resolve) => begin(start(calls), { end: resolve, background: true }));
}
