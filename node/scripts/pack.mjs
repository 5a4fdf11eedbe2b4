// Packs what is published into a folder: node scripts/pack.mjs FOLDER [--dev]
//
// The package itself, and one with the native module for this machine, of which npm installs the one that fits as an
// optional dependency. Run it on each platform and publish all of the latter before the former.

import { spawnSync } from "node:child_process";
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { cargo, compile } from "./build.mjs";

const here = join(dirname(fileURLToPath(import.meta.url)), "..");
const manifest = JSON.parse(readFileSync(join(here, "package.json"), "utf8"));

/** What npm calls a target of Rust's. */
function platform(target) {
  const [, arch, system, abi] = /^(x86_64|aarch64)-(?:unknown|apple|pc)-(linux|darwin|windows)(?:-(\w+))?$/.exec(
    target,
  );
  const os = system === "windows" ? "win32" : system;
  const cpu = arch === "x86_64" ? "x64" : "arm64";
  const libc = { gnu: "glibc", musl: "musl" }[abi];
  const name = [manifest.name, os, cpu, abi].filter(Boolean).join("-");
  return { name, os: [os], cpu: [cpu], ...(libc && os === "linux" ? { libc: [libc] } : {}) };
}

function host() {
  const { stdout } = spawnSync("rustc", ["-vV"], { encoding: "utf8" });
  return /^host: (.+)$/m.exec(stdout)[1];
}

function pack(destination, contents, files) {
  const folder = mkdtempSync(join(tmpdir(), "redlock-pack-"));
  writeFileSync(join(folder, "package.json"), JSON.stringify(contents, null, 2));
  for (const [from, to] of files) {
    mkdirSync(dirname(join(folder, to)), { recursive: true });
    copyFileSync(from, join(folder, to));
  }
  const { status } = spawnSync("npm", ["pack", "--silent", "--pack-destination", destination], {
    cwd: folder,
    stdio: "inherit",
  });
  rmSync(folder, { recursive: true });
  if (status !== 0) process.exit(status);
}

const [folder, ...flags] = process.argv.slice(2);
if (folder === undefined) {
  console.error("usage: node scripts/pack.mjs FOLDER [--dev]");
  process.exit(2);
}
const destination = resolve(folder);
mkdirSync(destination, { recursive: true });
const { devDependencies, napi, files, scripts, ...published } = manifest;

const machine = { ...platform(host()), version: manifest.version, license: manifest.license };
const description = `The native module of ${manifest.name} for ${host()}`;
pack(destination, { ...machine, description, main: "redlock-core.node", engines: manifest.engines }, [
  [cargo(flags.includes("--dev") ? "dev" : "dist"), "redlock-core.node"],
  [join(here, "../LICENSE"), "LICENSE"],
]);

compile();
const optionalDependencies = Object.fromEntries(
  napi.targets.map((target) => [platform(target).name, manifest.version]),
);
const javascript = readdirSync(join(here, "dist"), { recursive: true, encoding: "utf8" }).filter((name) =>
  /\.(?:m?js|d\.m?ts)$/.test(name),
);
pack(destination, { ...published, scripts: { install: scripts.install }, optionalDependencies }, [
  ...javascript.map((name) => [join(here, "dist", name), join("dist", name)]),
  ...["README.md", "scripts/install.mjs", "compat/redlock/package.json"].map((name) => [join(here, name), name]),
  [join(here, "../LICENSE"), "LICENSE"],
]);
