/** Access control for HTTP and gRPC: API keys with scopes, rate limits, and the limit of requests in progress. */
import type { IncomingMessage } from 'node:http';
import { findApiKey, parseApiKeys, type ApiKey, type Scope } from './api-keys.ts';
import type { HostConfig } from '../config/config.ts';
import { HostError } from '../errors.ts';
import type { Lifecycle } from '../http/lifecycle.ts';
import { shown } from '../infer/model-spec.ts';
import { rateLimit, type RateLimit } from './rate-limit.ts';
import type { Statistics } from '../records/statistics.ts';

/** `open`: no key needed and not counted (health checks, the page's own files). */
export type RouteScope = Scope | 'open';

/** A request, before any of it is processed. */
export interface Asking {
  /** The header, or the metadata entry, of that name. */
  readonly authorization: string | undefined;
  /** Address or network of the client, see `Connections.addressOf`. */
  readonly address: string;
}

const doing: Readonly<Record<Scope, string>> = {
  invoke: 'calling functions',
  publish: 'managing functions',
  read: 'reading',
};
const allowed: Readonly<Record<Scope, string>> = {
  invoke: 'call functions',
  publish: 'manage functions',
  read: 'read',
};

export class Access {
  #keys: readonly ApiKey[];
  readonly #guarded: ReadonlySet<RouteScope>;
  readonly #byKey: RateLimit | undefined;
  readonly #byAddress: RateLimit | undefined;
  readonly #now: () => number;

  constructor(
    { apiKeys, apiKeysFor, rate }: Pick<HostConfig, 'apiKeys' | 'apiKeysFor' | 'rate'>,
    now: () => number = () => performance.now(),
  ) {
    this.#keys = parseApiKeys(apiKeys);
    this.#guarded = new Set(this.#keys.length === 0 ? [] : ['publish', ...apiKeysFor]);
    this.#byKey = rate.perKey === 0 ? undefined : rateLimit(rate.perKey);
    this.#byAddress = rate.perAddress === 0 ? undefined : rateLimit(rate.perAddress);
    this.#now = now;
  }

  /**
   * From now on these keys are known. Whether there are any stays: without keys other rules hold, which nobody may slip
   * into by a file that is half written.
   *
   * @returns whether they are other keys than before
   * @throws RangeError if one is malformed, or none is left
   */
  setKeys(entries: readonly string[]): boolean {
    const keys = parseApiKeys(entries);
    if (this.#keys.length === 0) return false;
    if (keys.length === 0) throw new RangeError('it has no API keys any more');
    const [before, now] = [this.#keys, keys].map((each) => JSON.stringify(each.map(comparable)));
    this.#keys = keys;
    return before !== now;
  }

  /**
   * Admits a request. One with a key of this host counts for that key, any other for its address.
   *
   * @returns name of the key that it came with
   * @throws HostError 'unauthorized' | 'forbidden' | 'rate-limited'
   */
  admit(scope: RouteScope, asking: Asking): string | undefined {
    if (scope === 'open') return undefined;
    const key = this.#keyOf(asking);
    if (this.#byKey !== undefined && key !== undefined) this.#count(this.#byKey, key.name, `the API key '${key.name}'`);
    // A wrong key is counted before it is refused, so that keys cannot be guessed at speed.
    else if (this.#byAddress !== undefined && key === undefined) {
      this.#count(this.#byAddress, asking.address, 'this address');
    }
    if (this.#guarded.has(scope)) check(scope, key, asking.authorization);
    return key?.name;
  }

  /**
   * For parts of a request that need more than its route's scope.
   *
   * @throws HostError 'unauthorized' | 'forbidden'
   */
  authorize(scope: Scope, asking: Asking): void {
    if (this.#guarded.has(scope)) check(scope, this.#keyOf(asking), asking.authorization);
  }

  /** Whom a request counts for: the name of its key, or its address. */
  callerOf(asking: Asking): string {
    const key = this.#keyOf(asking);
    return key === undefined ? asking.address : `key ${key.name}`;
  }

  #keyOf({ authorization }: Asking): ApiKey | undefined {
    if (authorization === undefined || this.#keys.length === 0) return undefined;
    const text = bearerOf(authorization);
    return text === undefined ? undefined : findApiKey(this.#keys, text);
  }

  #count(limit: RateLimit, caller: string, named: string): void {
    const waitMs = limit(caller, this.#now());
    if (waitMs === 0) return;
    throw new HostError('rate-limited', `${named} has sent more requests a second than this host takes`, {
      retryAfterS: Math.ceil(waitMs / 1000),
    });
  }
}

const comparable = ({ name, scopes, digest }: ApiKey): unknown => [name, [...scopes].sort(), digest.toString('hex')];

function check(scope: Scope, key: ApiKey | undefined, authorization: string | undefined): void {
  if (authorization === undefined) {
    throw new HostError('unauthorized', `${doing[scope]} needs an API key: Authorization: Bearer <key>`);
  }
  if (bearerOf(authorization) === undefined) {
    throw new HostError('unauthorized', 'the Authorization header is not of the form: Bearer <key>');
  }
  if (key === undefined) throw new HostError('unauthorized', 'the API key is wrong');
  if (key.scopes.has(scope)) return;
  throw new HostError(
    'forbidden',
    `the API key '${key.name}' may not ${allowed[scope]}: its scopes are ${[...key.scopes].join(' and ')}`,
  );
}

const bearerOf = (authorization: string): string | undefined => /^Bearer +(\S+) *$/i.exec(authorization)?.[1];

// Which web pages may reach a host without API keys.

/**
 * Keeps web pages of other origins away from a host without API keys. Such a host listens on loopback only, but every
 * page in a browser of this machine could reach it: directly, or under a foreign name that a DNS server points here.
 *
 * @param origins whose pages may call and read; '*': all. Managing functions needs a key, so no foreign page may here
 * @throws HostError 'forbidden'
 */
export function checkOrigin(
  { apiKeys, cors: { origins } }: Pick<HostConfig, 'apiKeys' | 'cors'>,
  incoming: IncomingMessage,
  scope: RouteScope,
): void {
  if (apiKeys.length > 0) return;
  const { host, origin, 'sec-fetch-site': site } = incoming.headers;
  // A browser always sends the Host header.
  if (host !== undefined && !isLoopback(host)) {
    throw new HostError(
      'forbidden',
      'without API keys, this host is reached under a loopback name such as localhost only',
    );
  }
  if (origin === undefined && site === undefined) return;
  const own = `${isEncrypted(incoming) ? 'https' : 'http'}://${host}`;
  if (origin !== undefined && origin !== own && isAllowedOrigin(origins, origin)) {
    if (scope !== 'publish') return;
    throw new HostError(
      'forbidden',
      'managing functions from a web page of another origin needs an API key, and this host has none ("apiKeys")',
    );
  }
  const isForeign = origin !== undefined && origin !== own;
  const isFromOther = site === 'cross-site' || site === 'same-site';
  // A link to the dashboard, or a bookmark on another page.
  const isVisit = incoming.headers['sec-fetch-mode'] === 'navigate' && incoming.url?.split('?', 1)[0] === '/';
  if (isForeign || (isFromOther && !isVisit)) {
    throw new HostError('forbidden', 'a web page of another origin may not use this host; "cors.origins" can allow it');
  }
}

export function isAllowedOrigin(origins: readonly string[], origin: string): boolean {
  return origins.includes(origin) || origins.includes('*');
}

export function isEncrypted({ socket }: IncomingMessage): boolean {
  return 'encrypted' in socket && socket.encrypted === true;
}

/** The latest that did: most requests name the host as the one before. */
let latestLoopback: string | undefined;

/** Whether a Host header names this machine's loopback. */
export function isLoopback(host: string | undefined): boolean {
  if (host === undefined) return false;
  if (host === latestLoopback) return true;
  const isOne = namesLoopback(host);
  if (isOne) latestLoopback = host;
  return isOne;
}

function namesLoopback(host: string): boolean {
  const name = host.replace(/:\d+$/, '').toLowerCase();
  return name === 'localhost' || name.endsWith('.localhost') || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name);
}

// How many requests to functions are in progress.

export interface Admission {
  readonly config: HostConfig;
  readonly lifecycle: Lifecycle;
  readonly statistics: Statistics;
}

/** Does `work` as a request that counts against the limit. @throws HostError as {@link admit} */
export async function admitted<Result>(
  context: Admission,
  functionName: string,
  work: () => Promise<Result>,
): Promise<Result> {
  refuseWhileDraining(context);
  takePlace(context, functionName);
  try {
    return await work();
  } finally {
    context.statistics.end(functionName);
  }
}

/** Whether a request whose body is still to come would be taken. @throws HostError 'draining' | 'too-many-requests' */
export function checkRoom(context: Admission, functionName: string): void {
  refuseWhileDraining(context);
  checkPlace(context, functionName);
}

/**
 * Counts a request to a function whose body is there, until `statistics.end`. Those that never bring theirs take no place
 * from others: connections and the time for a body limit them.
 *
 * @throws HostError 'too-many-requests'
 */
export function takePlace(context: Admission, functionName: string): void {
  checkPlace(context, functionName);
  context.statistics.begin(functionName);
}

/**
 * A function may use as many places as are free besides its own: k stuck functions leave 1/(k+1) of the limit to all
 * others.
 */
function checkPlace({ statistics, config }: Admission, functionName: string): void {
  const { requestsInFlightMax } = config.limits;
  const left = requestsInFlightMax - statistics.requestsInFlight;
  const own = statistics.inFlightOf(functionName);
  if (left <= 0) {
    throw new HostError(
      'too-many-requests',
      `${requestsInFlightMax} requests are in progress already, which is this host's limit`,
    );
  }
  if (own >= left) {
    throw new HostError(
      'too-many-requests',
      `function '${shown(functionName)}' has ${own} requests in progress already; the ${left} that this ` +
        'host can still take are for others',
    );
  }
}

/** @throws HostError 'draining' */
export function refuseWhileDraining({ lifecycle }: Pick<Admission, 'lifecycle'>): void {
  if (lifecycle.phase === 'draining')
    throw new HostError('draining', 'the host is shutting down and takes no new work');
}
