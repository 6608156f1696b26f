/** Refused and failed requests in words: how many, whose fault, and why. */
import type { ErrorsAnswer } from '../../api-types.ts';

export interface ErrorSums {
  /** 4xx: errors of callers. */
  readonly client: number;
  /** 5xx: errors of the host. */
  readonly host: number;
}

export function errorSums({ causes }: Pick<ErrorsAnswer, 'causes'>): ErrorSums {
  const sum = (isOne: (status: number) => boolean): number =>
    causes.reduce((total, { status, count }) => total + (isOne(status) ? count : 0), 0);
  return { client: sum((status) => status < 500), host: sum((status) => status >= 500) };
}

/** '1,204 of callers (4xx), 33 of the host (5xx)' */
export function errorNote({ client, host }: ErrorSums): string {
  const parts = [
    ...(client === 0 ? [] : [`${client.toLocaleString('en')} of callers (4xx)`]),
    ...(host === 0 ? [] : [`${host.toLocaleString('en')} of the host (5xx)`]),
  ];
  return parts.length === 0 ? 'no request was refused or failed' : parts.join(', ');
}

/** A flood: any error of the host, or more than one call in twenty refused for its caller's mistake. */
export const isFlood = ({ client, host }: ErrorSums, offered: number): boolean =>
  host > 0 || client > 0.05 * (offered + client);
