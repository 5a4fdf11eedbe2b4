/**
 * Finds and loads the native module, and declares its types. The module has all logic; this package is its JavaScript
 * interface. Functions of the module throw a {@link Failure}, and failed calls end with one.
 *
 * @module
 */

import { existsSync } from "node:fs";
import { join } from "node:path";

/** The number of a call. */
export type Id = number;

/** The number of a pending call, or the result of a call that ended at once: its value or its failure. */
export type Started = Id | [value: unknown, failure: Failure | null | undefined];

/** The value of an option. Anything but a well-formed string, a number or a boolean crosses as a text to show. */
export type Given = string | number | boolean | { shown: string };

/** Options, in the order of the caller. */
export type Options = [name: string, value: Given][];

/** An error of the core, as a plain object. */
export interface Failure {
  code: string;
  message: string;
  reason?: string;
  causes: [node: string, cause: string][];
}

/** The calls that every use of a lock starts, as functions. Each returns the call's number or its result. */
interface Starters {
  acquire(lock: Lock, wait: Given | undefined): Started;
  release(lease: Lease): Started;
  leave(lease: Lease): Started;
  lost(lease: Lease): Id;
}

/** The calls of an event loop. All methods but the first three start a call and return its number or its result. */
interface NativeLoop {
  starters(): Starters;
  /** Sends the calls that were started while others were pending. Call it soon after such a start. */
  flush(): void;
  /** Cancels a call. True if its result was not drained yet, and never will be. */
  abandon(id: Id): boolean;
  releaseNewest(lock: Lock): Started;
  locked(lock: Lock): Id;
  inspect(lock: Lock): Id;
  available(lock: Lock): Id;
  extend(lease: Lease, ttl: Given): Started;
  downgrade(lease: Lease): Id;
  tryUpgrade(lease: Lease): Id;
  ping(client: Client): Id;
  forceRelease(client: Client, name: Given): Id;
  initNodes(client: Client): Id;
  attach(client: Client, text: Given): Id;
  close(client: Client): Id;
  events(events: Events): Id;
  releaseValue(value: HeldValue): Id;
  /** `how`: "add" to the remaining ttl, "replace" it if there is one, or "set" it in any case. */
  retimeValue(value: HeldValue, how: "add" | "replace" | "set", millis: number): Id;
  isValueThere(value: HeldValue): Id;
}

/** The calls of this event loop. */
export interface Loop extends NativeLoop, Starters {}

/** One side of a read/write lock. */
export type Part = "read" | "write";

/** Makes a lock by name. */
export type LockMaker = (name: Given, options: Options | undefined) => Lock;

export interface Client {
  readonly nodes: string[];
  readonly events: Events;
  locks(): LockMaker;
  part(name: Given, options: Options | undefined, part: Part): Lock;
  /** A lock object that acquires `n` slots of a semaphore with `of` slots. */
  permits(name: Given, options: Options | undefined, n: Given, of: Given): Lock;
  /** Makes a lock of this client from one without a client. */
  bindLock(lock: Unbound): Lock;
  /** For drop-in shims: a lock with a value that their library chose, held for `ttl` ms or, without it, for ever. */
  shimLock(name: string, value: string, ttl?: number): Lock;
  /** For drop-in shims: a value that may be in the key of a lock, whichever process wrote it. */
  value(name: string, value: string): HeldValue;
}

/** A value that may be in the key of a lock. {@link Loop} has the calls for it. */
// biome-ignore lint/complexity/noBannedTypes: it has no members
export type HeldValue = {};

/** The events of a client, which it does not keep alive. */
export interface Events {
  setVerbose(verbose: boolean): void;
}

/** A lock without a client yet. */
// biome-ignore lint/complexity/noBannedTypes: it has no members
export type Unbound = {};

declare const kind: unique symbol;

/** A lock, opaque. */
export interface Lock {
  [kind]: "lock";
}

/** A lease, opaque. */
export interface Lease {
  [kind]: "lease";
}

interface Native {
  locks: {
    owned(lock: Lock): boolean;
  };
  leases: {
    name(lease: Lease): string;
    owner(lease: Lease): string;
    token(lease: Lease): bigint;
    slots(lease: Lease): number[];
    tokens(lease: Lease): bigint[];
    held(lease: Lease): boolean;
    lostReason(lease: Lease): string | null;
    remaining(lease: Lease): number;
    check(lease: Lease): void;
    detach(lease: Lease): string;
    /** For drop-in shims: ends the lease here and leaves its key on the nodes. */
    letGo(lease: Lease): void;
  };
  Loop: {
    /**
     * Calls `take` with the results of calls, three arguments for each: number, value, failure. Refers weakly to
     * `take`. `isNode`: see {@link isNode}.
     */
    new (take: (...ended: unknown[]) => void, isNode: boolean): NativeLoop;
    /** Makes the process close all of its clients when it exits. */
    closeAtExit(): void;
  };
  Client: {
    new (loop: NativeLoop, urls: string[], options: Options): Client;
    fromEnvironment(loop: NativeLoop, variable: string | undefined, options: Options): Client;
  };
  Unbound: {
    /** Throws for a name or options that a client with the default options would refuse. */
    new (name: Given, options: Options | undefined, part?: Part): Unbound;
    /** The same for `n` slots of a semaphore with `of` slots. */
    permits(name: Given, options: Options | undefined, n: Given, of: Given): Unbound;
  };
}

/** The prefix of the packages that contain the module; release/targets.json of the repository lists them all. */
const PLATFORMS = "@redlock/core";

/** The packages that may have the module for this machine; npm installs those that fit. */
function packages(): string[] {
  const { platform, arch } = process;
  const flavours = { linux: ["-gnu", "-musl"], win32: ["-msvc"] }[platform as string] ?? [""];
  return flavours.map((flavour) => `${PLATFORMS}-${platform}-${arch}${flavour}`);
}

/** What the user can do if the module is missing. */
function remedy(): string {
  // Only a checkout of the repository has this file.
  if (existsSync(join(__dirname, "../scripts/build.mjs"))) {
    return `build it with \`npm run build\` in ${join(__dirname, "..")}, which needs Rust 1.88 or newer`;
  }
  return (
    `it comes with the optional package ${packages().join(" or ")}; install redlock-core again on this machine, ` +
    "without --omit=optional. If there is no such package, build it: npm install from a checkout of the repository, with Rust"
  );
}

function load(): Native {
  // Built in place, or installed beside this package.
  const places = ["./redlock-core.node", ...packages()];
  const causes: unknown[] = [];
  for (const place of places) {
    try {
      return require(place);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== "MODULE_NOT_FOUND") causes.push(error);
    }
  }
  const machine = `${process.platform}-${process.arch}`;
  const [cause] = causes;
  throw cause === undefined
    ? new Error(`redlock-core has no native module for ${machine}: ${remedy()}`)
    : new Error(`redlock-core cannot load its native module for ${machine}: ${(cause as Error).message}`, {
        cause: causes.length > 1 ? new AggregateError(causes) : cause,
      });
}

const [major] = process.versions.node.split(".");
if (Number(major) < 20) throw new Error(`redlock-core needs Node 20 or newer; this is Node ${process.versions.node}`);

/**
 * Whether the host is Node. Bun and Deno export the functions of libuv, too, but these do not work there as in Node
 * (ADR 41).
 */
export const isNode = process.versions.bun === undefined && process.versions.deno === undefined;

export const native: Native = load();

/** The functions of leases and of locks. */
export const { leases, locks } = native;
