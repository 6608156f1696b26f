/** Parses the address of a Redis server. Unknown parts are refused: another database is another system. */

/** The accepted form, to follow "must be". */
export const redisUrlForm =
  'an address such as "redis://127.0.0.1:6379", with a database "redis://127.0.0.1:6379/2", or ' +
  '"unix:///run/redis.sock" ("unix:///run/redis.sock?db=2")';

const protocols: ReadonlySet<string> = new Set(['redis:', 'rediss:', 'unix:']);

/** Undefined: the text is no address of a Redis server, or has parts without a meaning. */
export function parseRedisUrl(text: string) {
  if (!URL.canParse(text)) return undefined;
  const { protocol, pathname, hostname, port, username, password, search, hash } = new URL(text);
  if (!protocols.has(protocol) || hash !== '') return undefined;
  const isSocket = protocol === 'unix:';
  const asked = isSocket ? /^(?:\?db=(\d{1,9}))?$/.exec(search) : /^\/?(\d{1,9})?$/.exec(pathname);
  if (asked === null || (isSocket ? pathname.length < 2 : hostname === '' || search !== '')) return undefined;
  const host = hostname.replace(/^\[(.*)\]$/, '$1');
  try {
    return {
      at: isSocket ? { path: pathname } : { host, port: Number(port || 6379), tls: protocol === 'rediss:' },
      username: username === '' ? undefined : decodeURIComponent(username),
      password: password === '' ? undefined : decodeURIComponent(password),
      /** Undefined: the first. */
      database: asked[1] === undefined ? undefined : Number(asked[1]),
    };
  } catch {
    return undefined; // A '%' that encodes nothing.
  }
}
