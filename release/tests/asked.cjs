// What the loader of the Node package looks for on a machine: node asked.cjs PLATFORM ARCH. Nothing of it is found.

const Module = require("node:module");
const [platform, arch] = process.argv.slice(2);
Object.defineProperties(process, { platform: { value: platform }, arch: { value: arch } });
const resolve = Module._resolveFilename;
Module._resolveFilename = (name, ...rest) => {
  if (!name.endsWith(".node") && !name.startsWith("@")) return resolve(name, ...rest);
  console.log(name);
  throw Object.assign(new Error(name), { code: "MODULE_NOT_FOUND" });
};
try {
  require("../../node/dist/native.js");
} catch (error) {
  console.log(error.message);
}
