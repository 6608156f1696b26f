/** The hosts of a fleet and the homes of a function, in words. */
import type { FleetAnswer, FleetFunctionAnswer, FleetHostAnswer } from '../../../http/fleet-routes.ts';

const urgency: Readonly<Record<FleetHostAnswer['state'], number>> = { sick: 0, draining: 1, up: 2 };

/** Hosts that need attention first, then by name. */
export const sortHosts = (hosts: readonly FleetHostAnswer[]): readonly FleetHostAnswer[] =>
  hosts.toSorted(
    (one, other) =>
      urgency[one.state] - urgency[other.state] || one.name.localeCompare(other.name, 'en', { numeric: true }),
  );

/** 'lab: 1 of 3 hosts is sick, 1 drains' */
export function fleetHeadline({ fleet, hosts }: Pick<FleetAnswer, 'fleet' | 'hosts'>): string {
  const count = (state: FleetHostAnswer['state']): number => hosts.filter((host) => host.state === state).length;
  const [sick, draining] = [count('sick'), count('draining')];
  const all = `${hosts.length} host${hosts.length === 1 ? '' : 's'}`;
  const parts = [
    ...(sick === 0 ? [] : [`${sick} ${sick === 1 ? 'is' : 'are'} sick`]),
    ...(draining === 0 ? [] : [`${draining} ${draining === 1 ? 'drains' : 'drain'}`]),
  ];
  if (parts.length === 0) return `${fleet}: ${all} up`;
  const [first = '', ...rest] = parts;
  return [`${fleet}: ${first.replace(' ', ` of ${all} `)}`, ...rest].join(', ');
}

/** The question before a host drains. */
export function drainQuestion(name: string, hosts: readonly FleetHostAnswer[]): string {
  const others = hosts.filter((host) => host.name !== name && host.state === 'up').length;
  const left = others === 0 ? 'No other host is up.' : `${others} other host${others === 1 ? ' is' : 's are'} up.`;
  return (
    `Drain ${name}? It answers its own clients, takes no calls of other hosts, and is no home of ` +
    `functions. ${left}`
  );
}

export function hostNote({ self, state, reason }: FleetHostAnswer): string {
  const notes = [
    ...(self ? ['this page is of it'] : []),
    ...(reason === undefined ? [] : [reason]),
    ...(state === 'draining' ? ['takes no calls of other hosts'] : []),
  ];
  return notes.join('; ');
}

/** Link to the host's page; undefined if the browser cannot open it. */
export const hostPage = ({ url }: FleetHostAnswer): string | undefined =>
  /^https?:\/\//.test(url) ? `${url.replace(/\/+$/, '')}/#/fleet` : undefined;

export interface FunctionPlace {
  readonly host: string;
  /** 1: the best; undefined if the host is not a home. */
  readonly home: number | undefined;
  readonly hasContent: boolean;
  /** Null without a prediction. */
  readonly predictedMs: number | null;
}

/** The homes in order, then other hosts that have the content. */
export function placesOf({ homes, holders }: Pick<FleetFunctionAnswer, 'homes' | 'holders'>): FunctionPlace[] {
  const place = (host: string, index: number): FunctionPlace => {
    const holder = holders.find((each) => each.host === host);
    return {
      host,
      home: index < homes.length ? index + 1 : undefined,
      hasContent: holder !== undefined,
      predictedMs: holder?.predicted_ms ?? null,
    };
  };
  return [...new Set([...homes, ...holders.map(({ host }) => host)])].map(place);
}
