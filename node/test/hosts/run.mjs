// Runs files in a host: node run.mjs Bun|Deno run|test FILE...

import { spawn } from "node:child_process";
import { hosts } from "./hosts.mjs";

const [name, how, ...files] = process.argv.slice(2);
const host = hosts.find((one) => one.name === name);
if (host?.path === undefined) throw new Error(`there is no ${name} for this machine`);
const [command, ...options] = host[how];
const child = spawn(command, [...options, ...files], { stdio: "inherit" });
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => child.kill(signal));
child.once("exit", (code) => process.exit(code ?? 1));
