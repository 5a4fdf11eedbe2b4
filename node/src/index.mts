/**
 * The same for `import`. There is one implementation: a program that uses `import` and `require` has one client, and
 * one class of each error.
 *
 * @module
 */

export type * from "./index.js";
export {
  acquire,
  Closed,
  configure,
  InvalidArgument,
  KeyConflict,
  LockError,
  LockLost,
  LockTimeout,
  lock,
  NotHeld,
  Redlock,
  readWriteLock,
  semaphore,
  Unavailable,
  using,
  WouldDeadlock,
} from "./index.js";
