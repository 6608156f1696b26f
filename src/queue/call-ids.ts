/**
 * Ids of asynchronous calls. A client names a call, and the call is known by that name to the client's API key alone: two
 * keys may use one name, and neither learns of the other's call. In Redis the id begins with a hash of the key's name.
 */
import { createHash } from 'node:crypto';

/** In no id that a client may choose. */
const separator = '~';

/** @param keyName the caller's API key; undefined: it sent none */
export function ownedId(id: string, keyName: string | undefined): string {
  if (keyName === undefined) return id;
  const owner = createHash('sha256').update(keyName).digest('hex').slice(0, 32);
  return `${owner}${separator}${id}`;
}

/** The id as the client knows it. */
export const clientId = (id: string): string => id.slice(id.indexOf(separator) + 1);
