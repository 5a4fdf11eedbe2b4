/**
 * The package for `import`. It re-exports the module for `require`, so that a program that uses both has one default
 * client and one class of each error.
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
