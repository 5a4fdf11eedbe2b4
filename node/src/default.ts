/**
 * The default client: that of `configure()`, or else that of the environment.
 *
 * @module
 */

import { ENVIRONMENT, Redlock } from "./client";
import { sync } from "./errors";
import type { Lease } from "./lease";
import { type Body, block, type Found, Lock, ReadWriteLock, Semaphore, type Using } from "./lock";
import { rejecting } from "./loop";
import { native, type Part, type Unbound } from "./native";
import {
  type ClientOptions,
  type LockOptions,
  permitted,
  type ReadWriteOptions,
  type SemaphoreOptions,
  setting,
  settings,
  split,
  type TakeOptions,
} from "./options";

let standard: Redlock | undefined;

/**
 * Sets the client of `lock()`, `acquire()` and `using()` of this package. Without `urls` it uses the environment
 * variable `REDLOCK_URL`, several URLs separated by commas, or else `redis://127.0.0.1:6379`. Locks that were used
 * before keep their client. Throws {@link InvalidArgument}.
 */
export function configure(urls?: string | readonly string[] | null, options?: ClientOptions | null): void {
  standard = new Redlock(urls ?? ENVIRONMENT, options);
}

/**
 * The lock of this name on the default client, which `configure()` sets and which is found at the first use of the
 * lock. Sends nothing. Throws {@link InvalidArgument}.
 */
export function lock(name: string, options?: LockOptions | null): Lock {
  return new Lock(name, later(name, options));
}

/**
 * The read/write lock of this name on the default client, which `configure()` sets and which is found at the first use of
 * the lock. Sends nothing. Throws {@link InvalidArgument}.
 */
export function readWriteLock(name: string, options?: ReadWriteOptions | null): ReadWriteLock {
  return new ReadWriteLock(name, (part) => later(name, options, part));
}

/**
 * The semaphore of this name on the default client, which `configure()` sets and which is found at its first use. Sends
 * nothing. Throws {@link InvalidArgument}.
 */
export function semaphore(name: string, options: SemaphoreOptions): Semaphore {
  const [permits, taking] = permitted(options);
  const made = (n: number) => native.Unbound.permits(setting(name), taking, setting(n), setting(permits));
  return new Semaphore(name, permits, (n) => found(() => made(n)));
}

/** Finds a lock, or a part of one, once the client is known. */
function later(name: string, options: LockOptions | null | undefined, part?: Part): () => Found {
  return found(() => new native.Unbound(setting(name), settings(options), part));
}

/** Finds what was made without a client once that is known. */
function found(made: () => Unbound): () => Found {
  // Bad options are refused now, not when the client is known.
  const unbound = sync(made);
  return () => {
    standard ??= new Redlock(ENVIRONMENT);
    return standard.bind(unbound);
  };
}

/** Takes a lock on the default client: `lock(name, options).acquire({ signal })`. */
export function acquire(name: string, options?: TakeOptions | null): Promise<Lease> {
  return rejecting(() => {
    const [locking, acquiring] = split(options);
    return lock(name, locking).acquire(acquiring);
  });
}

/** Runs `body` with a lock of the default client held: `lock(name, options).using({ signal }, body)`. */
export function using<T>(name: string, body: Body<T>): Promise<T>;
/** The same, with the options of the lock and of the acquire. */
export function using<T>(name: string, options: TakeOptions | null | undefined, body: Body<T>): Promise<T>;
export function using<T>(name: string, ...given: Using<TakeOptions, T>): Promise<T> {
  return rejecting(() => {
    const [options, body] = block(given);
    const [locking, acquiring] = split(options);
    return lock(name, locking).using(acquiring, body);
  });
}
