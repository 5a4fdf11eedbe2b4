/**
 * Distributed locks on Redis: kept alive by a watchdog, on one node or a quorum, with fencing tokens.
 *
 * ```ts
 * import { using } from "redlock-core";
 *
 * await using("report", { wait: 5_000 }, async (signal, lease) => {
 *   signal.throwIfAborted();
 *   console.log("building under token", lease.token);
 * });
 * ```
 *
 * While `lease.held` is true, no other owner holds the lock, under the conditions in `docs/guarantees.md`. Times are
 * milliseconds.
 *
 * @module
 */

export { type NodeStatus, Redlock } from "./client";
export { acquire, configure, lock, readWriteLock, semaphore, using } from "./default";
export {
  Closed,
  InvalidArgument,
  KeyConflict,
  LockError,
  LockLost,
  LockTimeout,
  type LostReason,
  NotHeld,
  Unavailable,
  WouldDeadlock,
} from "./errors";
export type { EventKind, EventListener, RedlockEvent } from "./events";
export type { Lease, ReleaseOutcome } from "./lease";
export type { Body, Lock, LockInfo, ReadWriteLock, Semaphore } from "./lock";
export type {
  AcquireOptions,
  ClientOptions,
  LockOptions,
  PermitOptions,
  ReadWriteOptions,
  SemaphoreOptions,
  TakeOptions,
} from "./options";
