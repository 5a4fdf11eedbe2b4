/**
 * The default client: made by `configure()`, or else from the environment.
 *
 * @module
 */

import { ENVIRONMENT, Redlock } from "./client";
import { sync } from "./errors";
import type { Lease } from "./lease";
import { type Body, type BoundLock, block, Lock, ReadWriteLock, Semaphore, type Using } from "./lock";
import { rejecting } from "./loop";
import { native, type Options, type Part, type Unbound } from "./native";
import {
  type ClientOptions,
  type LockOptions,
  lockName,
  permitted,
  type ReadWriteOptions,
  readingAndWriting,
  type SemaphoreOptions,
  setting,
  settings,
  split,
  type TakeOptions,
} from "./options";

let standard: Redlock | undefined;

/**
 * Sets the default client, which `lock()`, `acquire()` and `using()` of this package use. Without `urls` it connects to
 * the URLs in the environment variable `REDLOCK_URL`, separated by commas, or else to `redis://127.0.0.1:6379`. Locks
 * that were used before keep their client. Throws {@link InvalidArgument}.
 *
 * @example
 * ```ts
 * import { configure, using } from "redlock-core";
 *
 * configure("redis://10.0.0.4:6379", { watchdog: 10_000 });
 * await using("report", async (signal, lease) => console.log("building under token", lease.token));
 * ```
 */
export function configure(urls?: string | readonly string[] | null, options?: ClientOptions | null): void {
  standard = new Redlock(urls ?? ENVIRONMENT, options);
}

/**
 * Returns the lock of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together. It belongs to the default
 * client at its first use: see `configure()`. Sends nothing. Throws {@link InvalidArgument}.
 */
export function lock(name: string, options?: LockOptions | null): Lock {
  return new Lock(name, lockOfDefaultClient(name, settings(options)));
}

/**
 * Returns the read/write lock of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together. It belongs to the
 * default client at its first use: see `configure()`. Sends nothing. Throws {@link InvalidArgument}.
 */
export function readWriteLock(name: string, options?: ReadWriteOptions | null): ReadWriteLock {
  const given = readingAndWriting(options);
  return new ReadWriteLock(name, (part) => lockOfDefaultClient(name, given, part));
}

/**
 * Returns the semaphore of this name. Prefix and name have 1 to 1024 bytes of UTF-8 together. It belongs to the default
 * client at its first use: see `configure()`. Sends nothing. Throws {@link InvalidArgument}.
 */
export function semaphore(name: string, options: SemaphoreOptions): Semaphore {
  const [permits, taking] = permitted(options);
  const made = (n: number) => native.Unbound.permits(lockName(name), taking, setting(n), setting(permits));
  return new Semaphore(name, permits, (n) => bindAtFirstUse(() => made(n)));
}

/** Makes a lock, or a part of a read/write lock, that is bound to the default client at its first use. */
function lockOfDefaultClient(name: string, options: Options, part?: Part): () => BoundLock {
  return bindAtFirstUse(() => new native.Unbound(lockName(name), options, part));
}

/** Makes a native lock without a client now; the returned function binds it to the default client. */
function bindAtFirstUse(make: () => Unbound): () => BoundLock {
  // Made now, so that invalid options throw here, not at the first use.
  const unbound = sync(make);
  return () => {
    standard ??= new Redlock(ENVIRONMENT);
    return standard.bindLock(unbound);
  };
}

/**
 * Acquires a lock of the default client: `lock(name, options).acquire({ signal })`. Rejects as {@link Lock.acquire}
 * does, and with {@link InvalidArgument}.
 */
export function acquire(name: string, options?: TakeOptions | null): Promise<Lease> {
  return rejecting(() => {
    const [locking, acquiring] = split(options);
    return lock(name, locking).acquire(acquiring);
  });
}

/**
 * Runs `body` while a lock of the default client is held: `lock(name, options).using({ signal }, body)`. Rejects as
 * {@link Lock.using} does, and with {@link InvalidArgument}.
 */
export function using<T>(name: string, body: Body<T>): Promise<T>;
/** The same, with options of the lock and of the acquire. */
export function using<T>(name: string, options: TakeOptions | null | undefined, body: Body<T>): Promise<T>;
export function using<T>(name: string, ...given: Using<TakeOptions, T>): Promise<T> {
  return rejecting(() => {
    const [options, body] = block(given);
    const [locking, acquiring] = split(options);
    return lock(name, locking).using(acquiring, body);
  });
}
