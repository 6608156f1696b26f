/** The log's level while the host runs, in the terms of Triton's log settings. */
import type { Logger } from 'pino';
import { HostError } from './errors.ts';

export class Logging {
  readonly #logger: Logger;
  #logsSuccess: boolean;

  constructor(logger: Logger) {
    this.#logger = logger;
    this.#logsSuccess = logger.isLevelEnabled('debug');
  }

  /** Whether successes are logged as well; kept, since asking for each request costs. */
  get logsSuccess(): boolean {
    return this.#logsSuccess;
  }

  settings(): Readonly<Record<string, boolean | number | string>> {
    const logs = (level: string): boolean => this.#logger.isLevelEnabled(level);
    return {
      log_file: '',
      log_info: logs('info'),
      log_warning: logs('warn'),
      log_error: logs('error'),
      log_verbose_level: logs('debug') ? 1 : 0,
      log_format: 'default',
    };
  }

  /**
   * Each level includes those that are more severe, so that the least severe one asked for decides.
   *
   * @throws HostError 'bad-request'
   */
  change(given: Readonly<Record<string, unknown>>): void {
    const asked = { ...this.settings(), ...given } as Readonly<Record<string, unknown>>;
    for (const key of ['log_info', 'log_warning', 'log_error']) {
      if (typeof asked[key] !== 'boolean') throw new HostError('bad-request', `'${key}' is not true or false`);
    }
    const verbose = asked['log_verbose_level'];
    if (typeof verbose !== 'number' || !Number.isSafeInteger(verbose) || verbose < 0) {
      throw new HostError('bad-request', "'log_verbose_level' is not a whole number of at least 0");
    }
    for (const [key, only] of [
      ['log_file', ''],
      ['log_format', 'default'],
    ] as const) {
      if (asked[key] !== only) {
        throw new HostError(
          'bad-request',
          `'${key}' cannot be changed while the host runs: it logs to its standard error`,
        );
      }
    }
    this.#logger.level =
      verbose > 0
        ? 'debug'
        : asked['log_info'] === true
          ? 'info'
          : asked['log_warning'] === true
            ? 'warn'
            : asked['log_error'] === true
              ? 'error'
              : 'silent';
    this.#logsSuccess = this.#logger.isLevelEnabled('debug');
  }
}
