/**
 * The errors. There is one class for each case in which a caller acts differently.
 *
 * @module
 */

import type { Failure } from "./native";

/**
 * Why a lock was lost.
 *
 * - `expired`: its deadline passed. A fixed lease ends so by itself, a renewed one if its process was paused too long.
 * - `taken`: another owner holds the key.
 * - `released`: it was ended on purpose, by `forceRelease()` or by a release of the same explicit owner elsewhere.
 * - `deleted`: the key is gone. It was deleted, evicted, flushed or lost in a restart.
 * - `unreachable`: too few nodes answered before the deadline.
 * - `closed`: the client was closed.
 * - `forked`: the process forked. Never happens in Node.
 * - `max_hold`: it was held for longer than `maxHold`.
 */
export type LostReason =
  | "expired"
  | "taken"
  | "released"
  | "deleted"
  | "unreachable"
  | "closed"
  | "forked"
  | "max_hold";

/** The base class of all errors of this library. */
export class LockError extends Error {
  /**
   * The kind of error, the same word in all languages: "timeout", "lost", "not_held", "unavailable", "conflict",
   * "deadlock", "invalid" or "closed".
   */
  readonly code: string = "error";

  static {
    named(LockError, "LockError");
  }
}

/** Another owner held the lock until the acquire's `wait` was over: try later. */
export class LockTimeout extends LockError {
  override readonly code = "timeout";

  static {
    named(LockTimeout, "LockTimeout");
  }
}

/** The lock was lost: stop touching what it protects. */
export class LockLost extends LockError {
  override readonly code = "lost";
  /** Why it was lost. */
  readonly reason: LostReason;

  static {
    named(LockLost, "LockLost");
  }

  constructor(message?: string, reason: LostReason = "expired") {
    super(message);
    this.reason = reason;
  }
}

/** A bug of the caller: it releases, extends or checks a lock that it does not hold. */
export class NotHeld extends LockError {
  override readonly code = "not_held";

  static {
    named(NotHeld, "NotHeld");
  }
}

/**
 * Too few nodes answered: an outage, not contention. A try rejects with it at once, a waiting acquire after the
 * client's `patience` (default: 5 s), or after its own `wait` if that is shorter.
 */
export class Unavailable extends LockError {
  override readonly code = "unavailable";
  /** The cause for each node that did not grant, for people, by the node's address without credentials. */
  readonly causes: Readonly<Record<string, string>>;

  static {
    named(Unavailable, "Unavailable");
  }

  constructor(message?: string, causes: Readonly<Record<string, string>> = {}) {
    super(message);
    this.causes = causes;
  }
}

/** The key holds a value that is not a lock. The value is unchanged: choose another name. */
export class KeyConflict extends LockError {
  override readonly code = "conflict";

  static {
    named(KeyConflict, "KeyConflict");
  }
}

/** The acquire would wait for its own caller: fix the calling code. */
export class WouldDeadlock extends LockError {
  override readonly code = "deadlock";

  static {
    named(WouldDeadlock, "WouldDeadlock");
  }
}

/** A name, a time, a URL or an option is wrong; the message names it, and nothing was sent. */
export class InvalidArgument extends LockError {
  override readonly code = "invalid";

  static {
    named(InvalidArgument, "InvalidArgument");
  }
}

/** The client was closed. */
export class Closed extends LockError {
  override readonly code = "closed";

  static {
    named(Closed, "Closed");
  }
}

/** Sets the name on the prototype: the engine reads it there when it writes the stack of a new error. */
export function named(kind: { prototype: Error }, name: string): void {
  Object.defineProperty(kind.prototype, "name", { value: name, configurable: true, writable: true });
}

function make({ code, message, reason, causes }: Failure): LockError {
  switch (code) {
    case "timeout":
      return new LockTimeout(message);
    case "lost":
      return new LockLost(message, reason as LostReason);
    case "not_held":
      return new NotHeld(message);
    case "unavailable":
      return new Unavailable(message, Object.fromEntries(causes));
    case "conflict":
      return new KeyConflict(message);
    case "deadlock":
      return new WouldDeadlock(message);
    case "invalid":
      return new InvalidArgument(message);
    case "closed":
      return new Closed(message);
    default:
      return new LockError(message);
  }
}

/** Converts a failure to an error. Call it where the caller's own lines are on the stack. */
export function failed(failure: Failure | Error): Error {
  // An error of the engine: it could not make the result.
  if (failure instanceof Error) return failure;
  const error = make(failure);
  Error.captureStackTrace(error, failed);
  return error;
}

/** Calls the native module, and converts a failure that it throws to an error. */
export function sync<T>(call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw failed(error as Failure | Error);
  }
}
