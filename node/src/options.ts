/**
 * The options of clients, locks and calls: their names and types. The defaults, and the rules, are the core's.
 *
 * @module
 */

import { inspect } from "node:util";
import { InvalidArgument } from "./errors";
import type { Given, Options } from "./native";

/** How a client uses its nodes. Times are milliseconds; undefined and null mean the default. */
export interface ClientOptions {
  /** How many nodes must agree, from a majority to all. Default: a majority. */
  quorum?: number | null | undefined;
  /** The lease that is renewed until release, 300 ms or more. Default: 30 s. */
  watchdog?: number | null | undefined;
  /** Put before every lock's name. Default: nothing. */
  prefix?: string | null | undefined;
  /** How a lock is written: as Redisson does, or as `SET name value NX PX ttl` does (redis-py and others). */
  wire?: "redisson" | "token" | null | undefined;
  /** How much faster a node's clock may run, as a share from 0.01 to below 0.5. Default: 0.1. */
  drift?: number | null | undefined;
  /** Where fencing tokens are counted: apart, or together with Redisson's `RFencedLock`. */
  tokenKey?: "redlock" | "redisson" | null | undefined;
  /**
   * How long a token's counter is kept after its last use, and so how far a node's clock may be set back and tokens still
   * increase: 60 s or more, on a quorum no less than a restarted node does not vote. Default: an hour.
   */
  tokenTtl?: number | null | undefined;
  /** The longest ttl on a quorum, and so how long a restarted node does not vote. Default: 60 s. */
  maxTtl?: number | null | undefined;
  /** How many replicas of a node must have acknowledged a lock before it counts there. Default: 0. */
  minReplicas?: number | null | undefined;
  /** How long an outage may last before a waiting acquire rejects with {@link Unavailable}. Default: 5 s. */
  patience?: number | null | undefined;
  /** How long a connection may take. Default: 2 s. */
  connectTimeout?: number | null | undefined;
  /** How long a reply may take. Default: 2 s. */
  replyTimeout?: number | null | undefined;
  /** Whether a quorum's nodes need `initNodes()` before their first vote. Default: false. */
  strict?: boolean | null | undefined;
  /** Whether a restarted node of a quorum stays away for `maxTtl`. Default: true; only tests turn it off. */
  quarantine?: boolean | null | undefined;
  /** The user, for URLs that name none. */
  username?: string | null | undefined;
  /** The password, for URLs that have none. */
  password?: string | null | undefined;
  /** A PEM file of certificates to trust, for `rediss://`. Default: the system's. */
  ca?: string | null | undefined;
  /** A PEM file with this client's certificate. */
  cert?: string | null | undefined;
  /** A PEM file with this client's private key. */
  key?: string | null | undefined;
}

/** How a lock is taken. Times are milliseconds; undefined and null mean the default. */
export interface LockOptions {
  /**
   * The lease. Default: the client's `watchdog`, renewed until release. A time, from 50 ms: fixed, never renewed.
   * "adaptive": renewed, of a length learned from how long the lock is held.
   */
  ttl?: number | "adaptive" | null | undefined;
  /** How long to wait for the lock; 0: one try. Default: for ever. */
  wait?: number | null | undefined;
  /** An owner across processes, 1 to 256 bytes. Default: every acquire is an owner of its own. */
  owner?: string | null | undefined;
  /** How long the lock is renewed at most. Default: for ever. */
  maxHold?: number | null | undefined;
  /** Whether its owner may take it again. Default: true; else that rejects with {@link WouldDeadlock}. */
  reentrant?: boolean | null | undefined;
  /**
   * Whether those that want it get it in the order in which they asked. Needs one server, cluster or Sentinel service, and
   * the same wherever the name is used. Default: false.
   */
  fair?: boolean | null | undefined;
}

/** How a read/write lock is taken. */
export type ReadWriteOptions = Omit<LockOptions, "owner" | "fair">;

/** What a semaphore is, and how its permits are taken. */
export interface SemaphoreOptions extends Omit<LockOptions, "owner" | "fair" | "reentrant"> {
  /** How many slots it has, 1 to 65536. */
  permits: number;
}

/** How one acquire waits. */
export interface AcquireOptions {
  /** How long to wait, in milliseconds; 0: one try. Default: the lock's own `wait`. */
  wait?: number | null | undefined;
  /** Gives up waiting: the acquire rejects with `signal.reason` and leaves nothing behind. */
  signal?: AbortSignal | null | undefined;
}

/** How permits are taken of a semaphore. */
export interface PermitOptions extends AcquireOptions {
  /** How many slots, at once. Default: one. */
  n?: number | null | undefined;
}

/** The options of a lock and of the acquire of it. */
export type TakeOptions = LockOptions & AcquireOptions;

/** How a name, a time or an option crosses to the native module. */
export function setting(value: unknown): Given {
  const fits = typeof value === "string" ? value.isWellFormed() : ["number", "boolean"].includes(typeof value);
  return fits ? (value as Given) : { shown: shown(value) };
}

function shown(value: unknown): string {
  return inspect(value, { depth: 0, breakLength: Number.POSITIVE_INFINITY, maxStringLength: 80 });
}

/** How options cross to the native module. */
export function settings(options: object | null | undefined): Options {
  return given(options).map(([name, value]) => [name, setting(value)]);
}

function given(options: object | null | undefined): [string, unknown][] {
  return Object.entries(object(options)).filter(([, value]) => value !== undefined && value !== null);
}

function object<T extends object>(options: T | null | undefined): T | Record<string, never> {
  if (typeof options !== "object" && options !== undefined) {
    throw new InvalidArgument(`options: must be an object, not ${shown(options)}`);
  }
  return options ?? {};
}

/** The options of a lock, and those of the acquire of it. */
export function split(options: TakeOptions | null | undefined): [LockOptions, AcquireOptions] {
  const { signal, ...locking } = object(options);
  return [locking, { signal }];
}

/** How many slots a semaphore has, and how they are taken. */
export function permitted(options: SemaphoreOptions): [number, Options] {
  const { permits, ...taking } = object(options) as SemaphoreOptions;
  return [permits, settings(taking)];
}

/** The options of one acquire. */
export function acquiring(options: AcquireOptions | null | undefined): {
  wait: Given | undefined;
  signal: AbortSignal | undefined;
} {
  let wait: Given | undefined;
  let signal: AbortSignal | undefined;
  for (const [name, value] of given(options)) {
    if (name === "wait") wait = setting(value);
    else if (name === "signal") signal = abortSignal(value);
    else throw new InvalidArgument(`options: there is no option ${JSON.stringify(name)}, only wait, signal`);
  }
  return { wait, signal };
}

function abortSignal(value: unknown): AbortSignal {
  // A test runner's sandbox may have an AbortSignal of its own.
  if (typeof (value as AbortSignal).addEventListener === "function" && "aborted" in (value as AbortSignal)) {
    return value as AbortSignal;
  }
  throw new InvalidArgument(`signal: must be an AbortSignal, not ${shown(value)}`);
}

/** The nodes of a client. */
export function nodes(urls: string | readonly string[]): string[] {
  const list = typeof urls === "string" ? [urls] : urls;
  if (!Array.isArray(list) || !list.every((url) => typeof url === "string")) {
    throw new InvalidArgument("urls: must be a URL or a list of URLs");
  }
  return list;
}
