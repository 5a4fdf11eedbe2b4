// Runs files in a host: node run.mjs Bun|Deno run|test FILE... At the end it also kills the processes that they
// started, because `bun test` ends without notifying the files that it runs.

import { spawn } from "node:child_process";
import { hosts } from "./hosts.mjs";

const [name, how, ...files] = process.argv.slice(2);
const host = hosts.find((one) => one.name === name);
if (host?.path === undefined) throw new Error(`there is no ${name} for this machine`);
const [command, ...options] = host[how];
// A process group of its own, so that `end` reaches all its processes.
const child = spawn(command, [...options, ...files], { stdio: "inherit", detached: true });

function end(signal) {
  try {
    process.kill(-child.pid, signal);
  } catch {
    // The group has ended.
  }
}

for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => end(signal));
child.once("exit", (code) => {
  end("SIGKILL");
  process.exit(code ?? 1);
});
