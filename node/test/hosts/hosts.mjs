// The hosts besides Node that the package supports. npm installs them with test/fixtures: those that fit this machine.

import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../fixtures/node_modules", import.meta.url));

/** A program of the one platform package that npm installed; undefined where npm has none for this machine. */
function program(scope, file) {
  const folder = `${FOLDER}/${scope}`;
  const [found] = existsSync(folder) ? readdirSync(folder) : [];
  return found && `${folder}/${found}/${file}`;
}

/** Each with what runs a file, and what runs a file of `node:test`. */
export const hosts = [
  { name: "Bun", path: program("@oven", "bin/bun"), run: ["run"], test: ["test"] },
  {
    name: "Deno",
    path: program("@deno", "deno"),
    run: ["run", "--allow-all"],
    test: ["test", "--allow-all", "--no-check"],
  },
].map(({ name, path, run, test }) => ({ name, path, run: [path, ...run], test: [path, ...test] }));
