/** A function after it was published: its settings, its versions, and which of them answers. */
import { HostError } from '../errors.ts';
import { allTo, parseTraffic, type Traffic } from '../rollout/traffic.ts';
import type { FunctionVersion } from '../types.ts';
import { functionView } from './describe.ts';
import type { Exchange } from './exchange.ts';
import { changeAsked, versionAsked, type HostContext } from './host-context.ts';

/** `PATCH /functions/{name}[/versions/{version}]`: settings as JSON or in the query; null: as published. */
export async function changeFunction(context: HostContext, exchange: Exchange): Promise<object> {
  const { name } = versionAsked(context, exchange);
  const version = exchange.param('version');
  await context.store.changeSettings(name, version, await changeAsked(context, exchange));
  return functionView(versionAsked(context, exchange), context);
}

/** `GET /functions/{name}/versions` */
export function listVersions(context: HostContext, exchange: Exchange): object {
  const current = versionAsked(context, exchange);
  const traffic = trafficOf(context, current);
  const versions = context.store.versions(current.name).map((version) =>
    Object.assign(functionView(version, context), {
      serves: version.version === current.version,
      percent: traffic.shares.find((share) => share.version === version.version)?.percent ?? 0,
      on_trial: context.rollout.onTrial(version.name) === version.version,
      answers: { ...context.statistics.find(version.key)?.outcomes },
    }),
  );
  return { name: current.name, versions, traffic: trafficView(context, current, traffic) };
}

/** `GET /functions/{name}/traffic` */
export function showTraffic(context: HostContext, exchange: Exchange): object {
  const current = versionAsked(context, exchange);
  return trafficView(context, current, trafficOf(context, current));
}

/** `PATCH /functions/{name}/traffic`: what the body leaves out stays. */
export async function changeTraffic(context: HostContext, exchange: Exchange): Promise<object> {
  const { name } = versionAsked(context, exchange);
  const change = await changeAsked(context, exchange);
  return trafficNow(context, exchange, await context.rollout.change(name, (now) => parseTraffic(change, now)));
}

/** `POST /functions/{name}/versions/{version}/promote[?percent=10]` */
export async function promoteVersion(context: HostContext, exchange: Exchange): Promise<object> {
  const version = versionAsked(context, exchange);
  const { percent } = await changeAsked(context, exchange, ['percent']);
  return trafficNow(context, exchange, await context.rollout.promote(version, percentAsked(percent)));
}

/** `POST /functions/{name}/rollback` */
export async function rollBack(context: HostContext, exchange: Exchange): Promise<object> {
  const { name } = versionAsked(context, exchange);
  await changeAsked(context, exchange, []);
  return trafficNow(context, exchange, await context.rollout.rollBack(name));
}

/** A share above 0. @throws HostError 'bad-request' */
export function percentAsked(given: unknown): number {
  if (given === undefined || given === null) return 100;
  const percent = typeof given === 'number' || typeof given === 'string' ? Number(given) : NaN;
  if (given !== '' && percent > 0 && percent <= 100) return percent;
  const shown = typeof given === 'string' ? given : JSON.stringify(given);
  throw new HostError('bad-request', `the share '${shown.slice(0, 40)}' is not a percentage above 0, up to 100`);
}

/** A change is answered with what holds now, which a version's own fallback may have changed meanwhile. */
const trafficNow = (context: HostContext, exchange: Exchange, traffic: Traffic): object =>
  trafficView(context, versionAsked(context, exchange), traffic);

const trafficOf = ({ store }: HostContext, { name, version }: FunctionVersion): Traffic =>
  store.traffic(name) ?? allTo(version);

function trafficView(context: HostContext, { name }: FunctionVersion, traffic: Traffic): object {
  const { shares, key, fallback, before, fellBack } = traffic;
  return {
    name,
    shares: Object.fromEntries(shares.map(({ version, percent }) => [version, percent])),
    key: key ?? null,
    fallback,
    before: before ?? null,
    on_trial: context.rollout.onTrial(name) ?? null,
    fell_back:
      fellBack === undefined ? null : { ...fellBack, atMs: undefined, at: new Date(fellBack.atMs).toISOString() },
  };
}
