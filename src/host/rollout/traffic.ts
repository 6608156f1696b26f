/** Which version answers a call that names none: by the hash of a key, or by share. */
import { createHash } from 'node:crypto';
import { HostError } from '../errors.ts';
import { isObject, withoutNulls } from '../infer/json-body.ts';
import { given } from '../../tools/index.ts';

export interface Share {
  readonly version: string;
  /** Above 0; a function's shares add up to 100. */
  readonly percent: number;
}

/** How the calls of one function are divided among its versions. */
export interface Traffic {
  readonly shares: readonly Share[];
  /** Lower-case name of a header: calls with the same value of it go to the same version. */
  readonly key?: string | undefined;
  /** Whether a new version returns its share automatically when half of its calls fail. */
  readonly fallback: boolean;
  /** The version that served most before the current one was promoted: a rollback goes there. */
  readonly before?: string | undefined;
  /** The latest version that was taken out automatically, and why. */
  readonly fellBack?: { readonly version: string; readonly reason: string; readonly atMs: number } | undefined;
}

/** Reads a header of the call by its lower-case name. */
export type HeaderOf = (name: string) => string | undefined;

/** All calls to one version. */
export const allTo = (version: string): Traffic => ({
  shares: [{ version, percent: 100 }],
  fallback: true,
});

/** The version with the largest share, of equal ones the first. */
export function primaryOf({ shares }: Traffic): string | undefined {
  let largest: Share | undefined;
  for (const share of shares) if (largest === undefined || share.percent > largest.percent) largest = share;
  return largest?.version;
}

/** Steps by the golden ratio fall evenly into [0, 1): of any 100 calls in a row, 10% get 9 to 11. */
const goldenStep = 0.6180339887498949;

/**
 * The version for one call.
 *
 * @param drawn how many calls were divided by share before
 * @param salt the function's name, so that a key hashes differently for each function
 */
export function versionFor(traffic: Traffic, salt: string, headerOf: HeaderOf, drawn: number): string | undefined {
  const key = traffic.key === undefined ? undefined : headerOf(traffic.key);
  const point = key === undefined ? (drawn * goldenStep) % 1 : pointOf(`${salt}\n${key}`);
  let end = 0;
  for (const { version, percent } of traffic.shares) {
    end += percent / 100;
    if (point < end) return version;
  }
  return traffic.shares.at(-1)?.version;
}

/** 48 bits of the sha256 as a number in [0, 1): the same on every host. */
function pointOf(text: string): number {
  return createHash('sha256').update(text).digest().readUIntBE(0, 6) / 2 ** 48;
}

/** Removes a version; its share goes to the others. Undefined if none is left. */
export function withoutVersion(traffic: Traffic, version: string): Traffic | undefined {
  const left = traffic.shares.filter((share) => share.version !== version);
  const total = left.reduce((sum, { percent }) => sum + percent, 0);
  if (total === 0) return undefined;
  return {
    ...traffic,
    shares: left.map((share) => ({ version: share.version, percent: (share.percent * 100) / total })),
    before: traffic.before === version ? undefined : traffic.before,
    fellBack: traffic.fellBack?.version === version ? undefined : traffic.fellBack,
  };
}

/**
 * Applies a new division. If another version serves most then, the previous one is remembered. That a version was taken
 * out is forgotten once it gets calls again.
 */
export function divided(now: Traffic, next: Partial<Traffic>): Traffic {
  const { fellBack, ...traffic } = { ...now, ...next };
  const isBack = traffic.shares.some(({ version }) => version === fellBack?.version);
  const [before, after] = [primaryOf(now), primaryOf(traffic)];
  return { ...traffic, ...(before === after ? {} : { before }), ...(isBack ? {} : given({ fellBack })) };
}

/** Moves the version's share to another version. */
export function moved(traffic: Traffic, from: string, to: string): Traffic {
  const freed = traffic.shares.find(({ version }) => version === from)?.percent ?? 0;
  const kept = traffic.shares.filter(({ version }) => version !== from);
  const has = kept.some(({ version }) => version === to);
  return {
    ...traffic,
    before: undefined,
    shares: has
      ? kept.map((share) => (share.version === to ? { version: to, percent: share.percent + freed } : share))
      : [...kept, { version: to, percent: freed }],
  };
}

const fields = ['shares', 'key', 'fallback'];
/** Fields that are gone, with what to do instead. */
const retired = {
  shadow:
    "'shadow' is gone: calls are no longer copied to a version. Give the version a small share, such as " +
    '{"shares": {"1": 99, "2": 1}}, or call it alone, under /function/my-model/versions/2',
  headers:
    "'headers' is gone: no header's value chooses a version any more. Call the version alone, under " +
    '/function/my-model/versions/2, or keep each caller at one version by {"key": "x-user-id"}',
};
const headerName = /^[!#$%&'*+.^_`|~0-9a-z-]{1,100}$/;

/**
 * Applies the body of `PATCH /functions/{name}/traffic`; omitted fields stay.
 *
 * @throws HostError 'bad-request'
 */
export function parseTraffic(body: Readonly<Record<string, unknown>>, now: Traffic): Traffic {
  for (const [name, sentence] of Object.entries(retired)) if ((body[name] ?? null) !== null) throw refused(sentence);
  const unknown = Object.keys(body).find((name) => !fields.includes(name) && !Object.hasOwn(retired, name));
  if (unknown !== undefined) throw refused(`unknown field '${unknown.slice(0, 80)}': known are ${fields.join(', ')}`);
  const { key, ...others } = body;
  const { shares, fallback } = withoutNulls(others);
  if (fallback !== undefined && typeof fallback !== 'boolean') throw refused("'fallback' is not true or false");
  return divided(now, {
    ...(shares === undefined ? {} : { shares: parseShares(shares) }),
    ...(key === undefined ? {} : { key: key === null ? undefined : parseKey(key) }),
    ...(fallback === undefined ? {} : { fallback }),
  });
}

function parseShares(given: unknown): Share[] {
  if (!isObject(given)) throw refused('\'shares\' is not an object such as {"1": 90, "2": 10}');
  const shares = Object.entries(given).map(([version, percent]) => ({ version, percent: parsePercent(percent) }));
  const total = shares.reduce((sum, { percent }) => sum + percent, 0);
  if (Math.abs(total - 100) > 1e-6) throw refused(`the shares add up to ${total}, but must make 100`);
  return shares.filter(({ percent }) => percent > 0);
}

function parseKey(given: unknown): string {
  const name = typeof given === 'string' ? given.toLowerCase() : '';
  if (!headerName.test(name)) throw refused("'key' is not the name of a header such as x-user-id");
  return name;
}

function parsePercent(given: unknown): number {
  if (typeof given === 'number' && given >= 0 && given <= 100) return given;
  throw refused(`the share ${JSON.stringify(given)?.slice(0, 40)} is not a percentage from 0 to 100`);
}

const refused = (sentence: string): HostError => new HostError('bad-request', sentence);
