/**
 * Converts ioredis clients to the nodes of a client of the core. It uses nothing of them but their settings. A setting
 * that says how to reach a server and cannot be carried over is refused, never ignored.
 *
 * @module
 */

import { isIP } from "node:net";
import { isDeepStrictEqual } from "node:util";
import { InvalidArgument } from "../errors";
import type { Options } from "../native";

/**
 * The used part of an ioredis client, `Redis` or `Cluster`: its options are read, and `Redlock.quit()` calls `quit()`.
 */
export interface Client {
  /** The settings with which it reaches its server. */
  readonly options: object;
  /** Ends its connection. */
  quit(): Promise<unknown>;
}

/** The arguments of a client of the core. */
export interface Target {
  urls: string[];
  options: Options;
}

/** The settings that must be equal in all clients, because the core has them once for all nodes. */
interface Common {
  keyPrefix: string;
  tls: Material;
  /** The login for unix sockets, whose URLs have no place for it. */
  login: Login;
  connectTimeout: number | undefined;
  commandTimeout: number | undefined;
}

type Login = { username?: string; password?: string };
type Material = { ca?: string; cert?: string; key?: string };
type Bag = Record<string, unknown>;
type Address = { host: string; port: number };

/** The default of ioredis, which cannot be told from an explicit one. The core's shorter default is used instead. */
const IOREDIS_CONNECT_TIMEOUT = 10_000;

/** Converts the clients to nodes. `db`, if given, replaces the clients' own. */
export function target(clients: Iterable<Client>, db: number | undefined): Target {
  const urls: string[] = [];
  let common: Common | undefined;
  for (const client of clients) {
    const [url, own] = node(client, db);
    urls.push(url);
    common ??= own;
    for (const name of Object.keys(own) as (keyof Common)[]) {
      if (!isDeepStrictEqual(common[name], own[name])) throw refused(name, "must be the same for all clients");
    }
  }
  const { keyPrefix, tls, login, connectTimeout, commandTimeout } = common as Common;
  const options = { prefix: keyPrefix, ...tls, ...login, connectTimeout, replyTimeout: commandTimeout };
  return { urls, options: Object.entries(options).filter((each): each is [string, string | number] => given(each[1])) };
}

function node(client: Client, db: number | undefined): [url: string, common: Common] {
  const options = bag(client?.options);
  if (options === undefined) throw refused("clients", "must be ioredis clients, which have options");
  return (client as { isCluster?: unknown }).isCluster === true
    ? ofCluster(client, options)
    : ofServer(options, db ?? number("db", options["db"]) ?? 0);
}

function ofServer(options: Bag, db: number): [url: string, common: Common] {
  // Clients of another package have `url` and `socket`.
  for (const name of ["Connector", "url", "socket"]) refuse(options, name);
  const keyPrefix = text("keyPrefix", options["keyPrefix"]) ?? "";
  const login = loginOf(options);
  if (Array.isArray(options["sentinels"]) && options["sentinels"].length > 0)
    return ofSentinels(options, db, keyPrefix);
  const path = text("path", options["path"]);
  if (path) {
    if (options["tls"]) throw refused("tls", "cannot be used on a unix socket");
    return [
      `unix://${encodeURI(path).replace(/[?#]/g, encodeURIComponent)}?db=${db}`,
      commonOf(options, keyPrefix, {}, login),
    ];
  }
  const address = addressOf("host", options, "localhost", 6379);
  const tls = options["tls"] ? materialOf("tls", options["tls"], address.host) : undefined;
  const url = `${tls ? "rediss" : "redis"}://${userinfo(login)}${shown(address)}/${db}`;
  return [url, commonOf(options, keyPrefix, tls)];
}

function ofSentinels(options: Bag, db: number, keyPrefix: string): [url: string, common: Common] {
  refuse(options, "natMap");
  if (options["role"] !== undefined && options["role"] !== "master") throw refused("role", 'must be "master"');
  const name = text("name", options["name"]);
  if (!name) throw refused("name", "must be the name of the master that the sentinels watch");
  const list = (options["sentinels"] as unknown[]).map((each) =>
    addressOf("sentinels", bag(each) ?? {}, "127.0.0.1", 26379),
  );
  const [ofMaster, ofSentinel] = [
    options["enableTLSForSentinelMode"] ? options["tls"] : undefined,
    options["sentinelTLS"],
  ];
  if (Boolean(ofMaster) !== Boolean(ofSentinel)) {
    throw refused("sentinelTLS", "TLS must be used for both the sentinels and the master, or for neither");
  }
  const tls = ofMaster ? materialOf("tls", ofMaster) : undefined;
  if (tls && !isDeepStrictEqual(tls, materialOf("sentinelTLS", ofSentinel))) {
    throw refused("sentinelTLS", "must have the certificates of tls");
  }
  const query = new URLSearchParams();
  const password = text("sentinelPassword", options["sentinelPassword"]);
  const username = text("sentinelUsername", options["sentinelUsername"]);
  if (password) {
    if (username) query.set("sentinel_username", username);
    query.set("sentinel_password", password);
  }
  const path = `${encodeURIComponent(name)}/${db}${password ? `?${query}` : ""}`;
  const url = `${tls ? "rediss" : "redis"}+sentinel://${userinfo(loginOf(options))}${list.map(shown)}/${path}`;
  return [url, commonOf(options, keyPrefix, tls)];
}

function ofCluster(client: Client, options: Bag): [url: string, common: Common] {
  for (const name of ["natMap", "useSRVRecords"]) refuse(options, name);
  const own = bag(options["redisOptions"]) ?? {};
  refuse(own, "Connector");
  const seeds = (client as { startupNodes?: unknown }).startupNodes;
  if (!Array.isArray(seeds) || seeds.length === 0) throw refused("startupNodes", "must be a list of addresses");
  const nodes = seeds.map(seed);
  // One set of settings for all nodes: `redisOptions`, and for settings that it lacks those of the first startup node.
  // In ioredis a startup node's settings override `redisOptions`, but the other nodes do not get them.
  const all = { ...nodes[0], ...Object.fromEntries(Object.entries(own).filter(([, value]) => given(value))) };
  const keyPrefix = text("keyPrefix", options["keyPrefix"]) || text("keyPrefix", own["keyPrefix"]) || "";
  const tls = all["tls"] ? materialOf("tls", all["tls"]) : undefined;
  const list = nodes.map((each) => shown(addressOf("startupNodes", each, "127.0.0.1", 6379)));
  const url = `${tls ? "rediss" : "redis"}+cluster://${userinfo(loginOf(all))}${list}`;
  return [url, commonOf(all, keyPrefix, tls)];
}

/** A startup node: a port, an address, a URL or options. */
function seed(given: unknown): Bag {
  if (typeof given === "number") return { port: given };
  if (typeof given === "object" && given !== null) return { ...given };
  if (typeof given !== "string") throw refused("startupNodes", "must be ports, addresses or options");
  let url: URL;
  try {
    url = new URL(given.includes("://") ? given : `redis://${given}`);
  } catch {
    throw refused("startupNodes", "has an address that is none");
  }
  const part = (text: string) => decodeURIComponent(text) || undefined;
  return {
    host: url.hostname.replace(/^\[|\]$/g, "") || undefined,
    port: url.port || undefined,
    username: part(url.username),
    password: part(url.password),
    tls: url.protocol === "rediss:" ? {} : undefined,
  };
}

function commonOf(options: Bag, keyPrefix: string, tls: Material | undefined, login: Login = {}): Common {
  const connectTimeout = number("connectTimeout", options["connectTimeout"]);
  return {
    keyPrefix,
    tls: tls ?? {},
    login,
    connectTimeout: connectTimeout === IOREDIS_CONNECT_TIMEOUT ? undefined : connectTimeout,
    commandTimeout: number("commandTimeout", options["commandTimeout"]),
  };
}

/** The login, if there is a password: without one, ioredis does not log in. */
function loginOf(options: Bag): Login {
  const password = text("password", options["password"]);
  const username = text("username", options["username"]);
  if (!password) return {};
  return username ? { username, password } : { password };
}

function userinfo({ username, password }: Login): string {
  return password === undefined ? "" : `${encodeURIComponent(username ?? "")}:${encodeURIComponent(password)}@`;
}

function addressOf(name: string, options: Bag, host: string, port: number): Address {
  const given = { host: text(name, options["host"]) || host, port: Number(options["port"] || port) };
  if (!Number.isInteger(given.port)) throw refused("port", "must be a number");
  return given;
}

function shown({ host, port }: Address): string {
  return `${isIP(host) === 6 ? `[${host}]` : encodeURIComponent(host)}:${port}`;
}

/** The PEM texts of TLS options. Any other option would change which servers are trusted, and is refused. */
function materialOf(name: string, options: unknown, host?: string): Material {
  const material: Material = {};
  for (const [option, value] of Object.entries(bag(options) ?? {})) {
    if (!given(value)) continue;
    if (option === "ca" || option === "cert" || option === "key") material[option] = pem(`${name}.${option}`, value);
    else if (option === "rejectUnauthorized" && value === true) continue;
    else if (option === "servername" && value === host) continue;
    else throw refused(`${name}.${option}`, "cannot be carried over; ca, cert and key can");
  }
  return material;
}

function pem(name: string, value: unknown): string {
  const texts = [value].flat().map((each) => (Buffer.isBuffer(each) ? each.toString() : each));
  if (!texts.every((each): each is string => typeof each === "string" && each.trimStart().startsWith("-----BEGIN"))) {
    throw refused(name, "must be PEM");
  }
  return texts.map((each) => each.trim()).join("\n");
}

function refuse(options: Bag, name: string): void {
  if (options[name]) throw refused(name, "cannot be carried over");
}

function refused(name: string, detail: string): InvalidArgument {
  return new InvalidArgument(`${name}: ${detail}`);
}

function given(value: unknown): boolean {
  return value !== undefined && value !== null;
}

function bag(value: unknown): Bag | undefined {
  return typeof value === "object" && value !== null ? (value as Bag) : undefined;
}

function text(name: string, value: unknown): string | undefined {
  if (!given(value)) return undefined;
  if (typeof value !== "string") throw refused(name, "must be a string");
  return value;
}

function number(name: string, value: unknown): number | undefined {
  if (!given(value)) return undefined;
  // Numbers from URLs are strings in ioredis.
  const parsed = typeof value === "string" && value !== "" ? Number(value) : value;
  if (typeof parsed !== "number" || Number.isNaN(parsed)) throw refused(name, "must be a number");
  return parsed;
}
