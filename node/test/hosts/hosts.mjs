// The hosts other than Node that the package supports. npm installs those that exist for this machine, with the other
// packages of test/fixtures.

import { existsSync, readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";

const FOLDER = fileURLToPath(new URL("../fixtures/node_modules", import.meta.url));

/** The path of a program in the platform package that npm installed; undefined if npm has none for this machine. */
function program(scope, file) {
  const folder = `${FOLDER}/${scope}`;
  const [found] = existsSync(folder) ? readdirSync(folder) : [];
  return found && `${folder}/${found}/${file}`;
}

/** Each host with the command that runs a file (`run`), and the one that runs a file of `node:test` (`test`). */
export const hosts = [
  { name: "Bun", path: program("@oven", "bin/bun"), run: ["run"], test: ["test"] },
  {
    name: "Deno",
    path: program("@deno", "deno"),
    run: ["run", "--allow-all"],
    test: ["test", "--allow-all", "--no-check"],
  },
].map(({ name, path, run, test }) => ({ name, path, run: [path, ...run], test: [path, ...test] }));
