/**
 * The options of clients, locks and calls: their names and types. The core has the defaults and checks the values.
 *
 * @module
 */

import { inspect } from "node:util";
import { InvalidArgument } from "./errors";
import type { Given, Options } from "./native";

/** The options of a client. Times are milliseconds, 10 years at most; undefined and null mean the default. */
export interface ClientOptions {
  /** How many nodes must agree, from a majority to all. Default: a majority. */
  quorum?: number | null | undefined;
  /**
   * The ttl of leases that are renewed until release; 300 ms or more, on a quorum at most `maxTtl`. Default: 30 s, or on
   * a quorum `maxTtl` if that is shorter.
   */
  watchdog?: number | null | undefined;
  /** A prefix of every lock's name. Default: empty. */
  prefix?: string | null | undefined;
  /**
   * The format of locks: Redisson's, or the string of `SET name value NX PX ttl` (redis-py and others). Default:
   * "redisson".
   */
  wire?: "redisson" | "token" | null | undefined;
  /** How much faster a node's clock may run than this process's: a share from 0.01 to below 0.5. Default: 0.1. */
  drift?: number | null | undefined;
  /** The token counter: this library's own, or the one of Redisson's `RFencedLock`. Default: "redlock". */
  tokenKey?: "redlock" | "redisson" | null | undefined;
  /**
   * How long a token counter is kept after its last use. Tokens still increase if a node's clock is set back by that
   * time or less. 60 s or more, and on a quorum no less than the quarantine of a restarted node. Default: an hour, or
   * the quarantine if that is longer.
   */
  tokenTtl?: number | null | undefined;
  /**
   * The longest ttl on a quorum, 50 ms or more, on a quorum 300 ms or more. A restarted node does not vote for that
   * time plus `drift`. Default: 60 s.
   */
  maxTtl?: number | null | undefined;
  /** How many replicas of a node, 0 to 1000, must acknowledge a lock before the node's vote counts. Default: 0. */
  minReplicas?: number | null | undefined;
  /**
   * How long a waiting acquire retries in an outage before it rejects with {@link Unavailable}; 1 ms or more. Default:
   * 5 s.
   */
  patience?: number | null | undefined;
  /** The time-out of a connect, 1 ms or more. Default: 2 s. */
  connectTimeout?: number | null | undefined;
  /** The time-out of a reply, 1 ms or more. Default: 2 s. */
  replyTimeout?: number | null | undefined;
  /** Whether the nodes of a quorum vote only after `initNodes()`. Default: false. */
  strict?: boolean | null | undefined;
  /**
   * Whether a restarted node of a quorum does not vote for `maxTtl` plus `drift`. Default: true; for tests only: false.
   */
  quarantine?: boolean | null | undefined;
  /**
   * Whether the client names its connections and reads the names of others, to tell who holds a lock. Default: true.
   */
  identify?: boolean | null | undefined;
  /**
   * The name of the program that other processes see; 1 to 64 bytes. Default: the environment variable `REDLOCK_APP`,
   * else `OTEL_SERVICE_NAME`, else the name of the script.
   */
  app?: string | null | undefined;
  /** The user, for URLs that name none. Default: none. */
  username?: string | null | undefined;
  /** The password, for URLs that have none. Default: none. */
  password?: string | null | undefined;
  /** The certificates to trust, for TLS: PEM text, or the path of a PEM file. Default: those of the system. */
  ca?: string | null | undefined;
  /** This client's certificate: PEM text, or the path of a PEM file; needs `key`. Default: none. */
  cert?: string | null | undefined;
  /** This client's private key: PEM text, or the path of a PEM file; needs `cert`. Default: none. */
  key?: string | null | undefined;
}

/** The options of a lock. Times are milliseconds, 10 years at most; undefined and null mean the default. */
export interface LockOptions {
  /**
   * The ttl of the lease. A number, from 50 ms and on a quorum to `maxTtl`: fixed, never renewed. "adaptive": renewed,
   * and as long as four average holds of this lock, but at least 2 s and at most `watchdog`. Default: the client's
   * `watchdog`, renewed until release.
   */
  ttl?: number | "adaptive" | null | undefined;
  /** How long an acquire waits for the lock; 0: one try. Default: without limit. */
  wait?: number | null | undefined;
  /** An owner that is the same in all processes, 1 to 256 bytes. Default: every acquire is an owner of its own. */
  owner?: string | null | undefined;
  /** The longest time for which the lock is renewed; 50 ms or more, not with a fixed `ttl`. Default: without limit. */
  maxHold?: number | null | undefined;
  /**
   * The least time for which the lock stays taken, from its grant, however early it is released: 50 ms or more. After
   * the release nobody holds the lock, and everybody waits for the rest. On a quorum at most `maxTtl`; at most `maxHold`
   * or a fixed `ttl`; not with an `owner`; readers have none. Default: a release frees the lock.
   */
  minHold?: number | null | undefined;
  /** Whether the owner can nest. If false, a nested acquire rejects with {@link WouldDeadlock}. Default: true. */
  reentrant?: boolean | null | undefined;
  /**
   * Whether waiters get the lock in the order of their acquires, in all processes. Needs one server, cluster or
   * Sentinel service, and the same setting wherever the name is used. Default: false.
   */
  fair?: boolean | null | undefined;
}

/** The options of a read/write lock: those of a lock without `owner` and `fair`. */
export type ReadWriteOptions = Omit<LockOptions, "owner" | "fair">;

/**
 * The options of a semaphore: those of a lock without `owner`, `fair`, `reentrant` and `minHold`, and the number of
 * slots.
 */
export interface SemaphoreOptions extends Omit<LockOptions, "owner" | "fair" | "reentrant" | "minHold"> {
  /** The number of slots, 1 to 65536. */
  permits: number;
}

/** The options of one acquire. */
export interface AcquireOptions {
  /** How long the acquire waits, in milliseconds, 10 years at most; 0: one try. Default: the lock's own `wait`. */
  wait?: number | null | undefined;
  /** Cancels the acquire, which rejects with `signal.reason` and leaves nothing behind. Default: none. */
  signal?: AbortSignal | null | undefined;
}

/** The options of one acquire of a semaphore. */
export interface PermitOptions extends AcquireOptions {
  /** How many slots it acquires at once, from 1 to the semaphore's `permits`. Default: 1. */
  n?: number | null | undefined;
}

/** The options of a lock and of one acquire. */
export type TakeOptions = LockOptions & AcquireOptions;

/** Checks the name of a lock. */
export function lockName(value: unknown): string {
  if (typeof value === "string" && value.isWellFormed()) return value;
  throw new InvalidArgument(`name: must be a string of valid Unicode, not ${shown(value)}`);
}

/** Converts a time, a text or the value of an option for the native module. */
export function setting(value: unknown): Given {
  const fits = typeof value === "string" ? value.isWellFormed() : ["number", "boolean"].includes(typeof value);
  return fits ? (value as Given) : { shown: shown(value) };
}

function shown(value: unknown): string {
  return inspect(value, { depth: 0, breakLength: Number.POSITIVE_INFINITY, maxStringLength: 80 });
}

/** Converts options for the native module. */
export function settings(options: object | null | undefined): Options {
  return given(options).map(([name, value]) => [name, setting(value)]);
}

function given(options: object | null | undefined): [string, unknown][] {
  return Object.entries(object(options)).filter(([, value]) => value !== undefined && value !== null);
}

function object<T extends object>(options: T | null | undefined): T | Record<string, never> {
  if (options === undefined || options === null) return {};
  // The options of an array, a Map or a Set would be its indices, or none.
  if (typeof options !== "object" || Symbol.iterator in options) {
    throw new InvalidArgument(`options: must be an object, not ${shown(options)}`);
  }
  return options;
}

/** Refuses an option that is neither in `names` nor in `others`, which the message does not list. */
function only(options: object | null | undefined, names: readonly string[], others: readonly string[] = []): void {
  for (const [name] of given(options)) {
    if (!names.includes(name) && !others.includes(name)) {
      throw new InvalidArgument(`options: there is no option ${JSON.stringify(name)}, only ${names.join(", ")}`);
    }
  }
}

/** Refuses every option of a call that has none: an ignored `signal` or `wait` would mislead. */
export function without(options: unknown, call: string): void {
  for (const [name] of given(options as object)) {
    throw new InvalidArgument(`options: ${call}() has no option ${JSON.stringify(name)}`);
  }
}

/** Splits the options into those of the lock and those of the acquire. */
export function split(options: TakeOptions | null | undefined): [LockOptions, AcquireOptions] {
  only(options, OF_TAKING);
  const { signal, ...locking } = object(options);
  return [locking, { signal }];
}

const OF_TAKING = ["ttl", "wait", "signal", "owner", "maxHold", "minHold", "reentrant", "fair"];
const OF_READ_WRITE = ["ttl", "wait", "maxHold", "minHold", "reentrant"];
const OF_SEMAPHORE = ["permits", "ttl", "wait", "maxHold"];

/** Converts the options of a read/write lock. The native module says why it has no `owner` and is not `fair`. */
export function readingAndWriting(options: ReadWriteOptions | null | undefined): Options {
  only(options, OF_READ_WRITE, ["owner", "fair"]);
  return settings(options);
}

/** Splits the options of a semaphore into the number of slots and the rest. The native module refuses the `others`. */
export function permitted(options: SemaphoreOptions): [number, Options] {
  only(options, OF_SEMAPHORE, ["owner", "fair", "minHold", "reentrant"]);
  const { permits, ...taking } = object(options) as SemaphoreOptions;
  return [permits, settings(taking)];
}

/** Splits the options of one acquire of a semaphore into the number of slots and the rest. */
export function taking(options: PermitOptions | null | undefined): [PermitOptions["n"], AcquireOptions | undefined] {
  if (options === undefined || options === null) return [undefined, undefined];
  only(options, ["n", "wait", "signal"]);
  const { n, ...acquiring } = options;
  return [n, acquiring];
}

/** Reads the number of slots of a try. */
export function trying(options: Pick<PermitOptions, "n"> | null | undefined): PermitOptions["n"] {
  only(options, ["n"]);
  return options?.n;
}

/** Checks and converts the options of one acquire. */
export function acquiring(options: AcquireOptions | null | undefined): {
  wait: Given | undefined;
  signal: AbortSignal | undefined;
} {
  let wait: Given | undefined;
  let signal: AbortSignal | undefined;
  only(options, ["wait", "signal"]);
  for (const [name, value] of given(options)) {
    if (name === "wait") wait = setting(value);
    else signal = abortSignal(value);
  }
  return { wait, signal };
}

/** The methods of a signal that an acquire calls. */
const OF_SIGNAL = ["addEventListener", "removeEventListener", "throwIfAborted"] as const;

function abortSignal(value: unknown): AbortSignal {
  // Not `instanceof`: a test runner's sandbox may have an AbortSignal of its own.
  if (OF_SIGNAL.every((method) => typeof (value as AbortSignal)[method] === "function")) return value as AbortSignal;
  throw new InvalidArgument(`signal: must be an AbortSignal, not ${shown(value)}`);
}

/** Checks the URLs of a client. */
export function nodes(urls: string | readonly string[]): string[] {
  const list = typeof urls === "string" ? [urls] : urls;
  if (!Array.isArray(list) || !list.every((url) => typeof url === "string")) {
    throw new InvalidArgument("urls: must be a URL or a list of URLs");
  }
  return list;
}
