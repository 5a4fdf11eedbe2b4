#!/usr/bin/env node
// Starts the program. Where Node can, the program takes the place of this process: signals and the exit code need no
// help then, and no process is left behind. Elsewhere this process forwards signals and ends as the program does.

import { spawn } from "node:child_process";
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const name = process.platform === "win32" ? "redlock.exe" : "redlock";
const program = join(dirname(fileURLToPath(import.meta.url)), "bin", name);
const FORWARDED = ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT", "SIGWINCH"];

if (!existsSync(program)) {
  console.error(`redlock: ${program} is missing. Install the package with scripts: npm install --foreground-scripts`);
  process.exit(70);
}

if (typeof process.execve === "function" && process.platform !== "win32") {
  // execve is experimental, and its warning would be on stderr.
  process.removeAllListeners("warning");
  process.execve(program, [name, ...process.argv.slice(2)], process.env);
}

const child = spawn(program, process.argv.slice(2), { stdio: "inherit" });
const handlers = FORWARDED.filter((signal) => process.platform !== "win32" || signal === "SIGINT").map((signal) => {
  const forward = () => child.kill(signal);
  process.on(signal, forward);
  return [signal, forward];
});
child.on("error", (error) => {
  console.error(`redlock: cannot start ${program}: ${error.message}`);
  process.exit(70);
});
child.on("exit", (code, signal) => {
  for (const [forwarded, forward] of handlers) process.off(forwarded, forward);
  if (signal !== null) process.kill(process.pid, signal);
  else process.exit(code);
});
