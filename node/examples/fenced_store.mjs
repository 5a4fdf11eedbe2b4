// Fencing in an object store: conditional writes, and the token in the object. Copy it; see docs/fencing.md.
//
// It uses plain HTTP with ETag, If-Match and If-None-Match, the protocol below the SDKs of S3 and similar stores.

/** A later holder of the lock has accessed the object: stop. */
export class Outdated extends Error {}

/** Writes a value, or only reads it if `write` is undefined. Returns the value; undefined if there is no object. */
export async function access(url, token, write = undefined) {
  for (;;) {
    const { content, etag } = await get(url);
    const fence = BigInt(content.fence);
    if (fence > token) throw new Outdated(`${url}: token ${token}`);
    const value = write === undefined ? content.value : write;
    // The first access of a tenure writes its token even if it only reads. That stops earlier holders.
    if (write === undefined && fence === token) return value;
    if (await put(url, { fence: String(token), value }, etag)) return value;
    // Another process wrote first. Read its token, and try again.
  }
}

/**
 * The object's content and etag.
 * @returns {Promise<{ content: { fence: string, value?: any }, etag: string | null }>}
 */
export async function get(url) {
  const response = await fetch(url);
  if (response.status === 404) return { content: { fence: "0" }, etag: null };
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return { content: /** @type {any} */ (await response.json()), etag: response.headers.get("ETag") };
}

/** Replaces the object if it still has this etag, or creates it if `etag` is null. False if it has changed. */
export async function put(url, content, etag) {
  const headers = etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };
  const response = await fetch(url, { method: "PUT", body: JSON.stringify(content), headers });
  if ([404, 409, 412].includes(response.status)) return false; // gone; written at the same time; written before
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return true;
}

/** Reads, computes and writes. The caller holds the lock. */
export async function deposit(url, amount, token) {
  const balance = (await access(url, token)) ?? 0;
  await access(url, token, balance + amount);
}
