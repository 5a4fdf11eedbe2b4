// Fencing in an object store: conditional writes, and the token in the object. To be copied; see docs/fencing.md.
//
// Plain HTTP with ETag, If-Match and If-None-Match, which is what S3 and those like it speak below their SDKs.

/** A newer holder of the lock was here: stop. */
export class Outdated extends Error {}

/** Writes a value, unless that is undefined; returns what is in the object then: undefined if there is no object. */
export async function access(url, token, write = undefined) {
  for (;;) {
    const { content, etag } = await get(url);
    const fence = BigInt(content.fence);
    if (fence > token) throw new Outdated(`${url}: token ${token}`);
    const value = write === undefined ? content.value : write;
    // The first access of a tenure writes even if it only reads: that is what stops the holders before.
    if (write === undefined && fence === token) return value;
    if (await put(url, { fence: String(token), value }, etag)) return value;
    // Somebody was faster. Look who it was.
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

/** Replaces the object if its etag is still this one, or creates it; tells whether that was so. */
export async function put(url, content, etag) {
  const headers = etag === null ? { "If-None-Match": "*" } : { "If-Match": etag };
  const response = await fetch(url, { method: "PUT", body: JSON.stringify(content), headers });
  if ([404, 409, 412].includes(response.status)) return false; // gone; written at the same time; written before
  if (!response.ok) throw new Error(`${url}: ${response.status}`);
  return true;
}

/** Reads, thinks, writes: under a lock. */
export async function deposit(url, amount, token) {
  const balance = (await access(url, token)) ?? 0;
  await access(url, token, balance + amount);
}
