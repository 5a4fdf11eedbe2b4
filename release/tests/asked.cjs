// Prints the modules that the Node package's loader tries on a kind of machine: node asked.cjs PLATFORM ARCH. None is
// found, so the last line is the loader's error message.

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
