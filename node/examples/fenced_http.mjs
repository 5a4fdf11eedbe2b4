// Fencing in an HTTP service: every request, reads included, has the token in a header. Copy it; see docs/fencing.md.
//
//     node fenced_http.mjs port
//
// The service keeps its documents in memory with their tokens, so that it cannot lose one without the other. A service
// with a database checks the token there, in the transaction of the request.

import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { fileURLToPath } from "node:url";

/** A later holder of the lock has accessed the document: stop. */
export class Outdated extends Error {}

/** The service: documents at any path. */
export function service(documents = new Map()) {
  return createServer(async (request, response) => {
    const token = String(request.headers["fencing-token"] ?? "");
    const write = request.method === "PUT" ? await text(request) : undefined;
    // Nothing below waits: the check, the token and the document are one step.
    const known = documents.get(request.url) ?? { fence: 0n, content: "" };
    if (!/^\d{1,19}$/.test(token)) {
      response.writeHead(428); // Precondition Required: without a token nobody gets anything, not even to read
    } else if (BigInt(token) < known.fence) {
      response.writeHead(412); // Precondition Failed
    } else {
      const content = write ?? known.content;
      documents.set(request.url, { fence: BigInt(token), content });
      response.write(content);
    }
    response.end();
  });
}

/** Writes a document, or only reads it if `write` is undefined. Returns its content; "" if there is none. */
export async function access(url, token, write = undefined) {
  const headers = { "Fencing-Token": String(token) };
  const response = await fetch(url, { method: write === undefined ? "GET" : "PUT", body: write, headers });
  if (response.status === 412) throw new Outdated(`${url}: token ${token}`);
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return await response.text();
}

/** Reads, computes and writes. The caller holds the lock. */
export async function deposit(url, amount, token) {
  const balance = Number(await access(url, token));
  await access(url, token, String(balance + amount));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) service().listen(Number(process.argv[2]), "127.0.0.1");
