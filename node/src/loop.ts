/**
 * The pending calls of this event loop. It starts calls of the native module, settles their promises when results come,
 * and keeps the process alive while calls are pending. User code runs only in microtasks after that, because promises
 * call back asynchronously.
 *
 * @module
 */

import * as timers from "node:timers";
import { isMainThread } from "node:worker_threads";
import { onAbort } from "./abort";
import { failed, sync } from "./errors";
import { type Failure, type Id, isNode, type Loop, native, type Started } from "./native";

// Taken out here, because fake timers of tests later replace the functions of that module, besides the global ones.
const { clearInterval, setInterval } = timers;
/** Its `then` is what `queueMicrotask` is, which fake timers replace. */
const turn = Promise.resolve();

/** A pending call. */
interface Waiting {
  /** Takes its result. */
  end(value: unknown, failure: Failure | null | undefined): void;
  /** Whether it lets the process exit. */
  background: boolean;
  /** Stops listening to the signal that would cancel it. */
  unlisten?: () => void;
}

const waiting = new Map<Id, Waiting>();
/** The number of calls that keep the process alive, and the timer with which they do. */
let busy = 0;
let alive: NodeJS.Timeout | undefined;
const LONG = 2 ** 31 - 1;
/** Whether calls wait to be sent at the end of the present turn. */
let unsent = false;

// Made when the module is loaded, not at the first use: it keeps the async context in which it is made, and at the
// first use that might be a request's. The native module does not keep `take` alive, so `calls` does.
const loop = new native.Loop(take, isNode);
/** The calls of this event loop. */
export const calls: Loop = Object.assign(loop, loop.starters(), { take });
// When a worker thread ends, in any way, the native module closes the thread's clients.
// In Deno, `isMainThread` is true in worker threads, too.
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
    // Calls of the same turn are sent together. A single call was sent at once.
    unsent = true;
    void turn.then(flush);
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
 * Starts a call; resolves with its value, or with the result of `made` for that value. If the signal is aborted before
 * the result comes, cancels the call and rejects with the signal's reason.
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
  // Not an async function, which would cost two more turns of the microtasks. An exception in here rejects the promise.
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
        // A drained result is on its way to the caller.
        if (!calls.abandon(started)) return;
        finish(started);
        reject(signal.reason);
      });
    }
  });
}

/**
 * Throws two microtask turns later, when the caller's promise waits for this one. Only then does the engine know which
 * function awaits the caller's promise, and put its lines into the stack of the error.
 */
async function failing(failure: Failure): Promise<never> {
  await undefined;
  await undefined;
  throw failed(failure);
}

/** Calls `make`, and converts an exception to a rejected promise. */
export function rejecting<T>(make: () => Promise<T>): Promise<T> {
  try {
    return make();
  } catch (error) {
    return Promise.reject(error);
  }
}

/** Starts a call that lets the process exit. Calls `tell` with its value, or with undefined if it fails. */
export function watch(start: (loop: Loop) => Id, tell: (value: unknown) => void): void {
  inBackground(start).then(tell, () => tell(undefined));
}

/** A separate function, so that no closure keeps `start` alive: what `start` refers to can be collected. */
function inBackground(start: (loop: Loop) => Id): Promise<unknown> {
  return new Promise((resolve) => begin(start(calls), { end: resolve, background: true }));
}
