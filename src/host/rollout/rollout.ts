/**
 * Brings versions into service and takes them out again. Before it gets calls, a version is loaded, and tried with the
 * function's example. Then it is on trial: if half of its first calls fail, its share goes back automatically.
 */
import type { PoolInput } from '../../cpu/index.ts';
import { HostError, ofTheMachine, toHostError } from '../errors.ts';
import type { EventLog } from '../history/index.ts';
import { specOf } from '../infer/model-spec.ts';
import { decodePlain } from '../infer/plain.ts';
import type { Invoker } from '../calls/invoke.ts';
import type { InvocationRecord, InvocationRecorder } from '../calls/placement.ts';
import { runInSlices } from '../../tensor/index.ts';
import type { Log } from '../../tools/index.ts';
import { allTo, divided, moved, primaryOf, type Traffic } from './traffic.ts';
import type { FunctionVersion, ModelStore } from '../types.ts';

export interface RolloutOptions {
  readonly store: Pick<ModelStore, 'find' | 'versions' | 'traffic' | 'changeTraffic' | 'onChange'>;
  readonly invoker: Pick<Invoker, 'ready' | 'load' | 'tryOut'>;
  /** Of invocations: the rollout is one of them while a version is on trial. */
  readonly recorders: Pick<Set<InvocationRecorder>, 'add' | 'delete'>;
  readonly eventLog: EventLog;
  readonly logger: Log;
}

interface Trial {
  readonly version: string;
  /** The version that its share goes back to. */
  readonly from: string;
  /** Its answers since it got the share, failed ones included. */
  answers: number;
  failed: number;
}

export class Rollout implements InvocationRecorder {
  readonly #options: RolloutOptions;
  /** By function: one version at a time. */
  readonly #trials = new Map<string, Trial>();

  constructor(options: RolloutOptions) {
    this.#options = options;
    options.store.onChange(({ before, after }) => {
      if (before === undefined || after !== undefined) return;
      const trial = this.#trials.get(before.name);
      if (trial?.version === before.version || trial?.from === before.version) this.#end(before.name);
    });
  }

  /** The version that is on trial. */
  onTrial(functionName: string): string | undefined {
    return this.#trials.get(functionName)?.version;
  }

  /**
   * Changes how a function's calls are divided. A version that gets calls for the first time is warmed up before.
   *
   * @throws HostError 'unknown-function', 'unknown-version', 'warm-up-failed', or what `change` throws; nothing changed
   */
  async change(functionName: string, change: (now: Traffic) => Traffic, onTrial = true): Promise<Traffic> {
    const { store } = this.#options;
    const current = store.find(functionName);
    if (current === undefined) throw new HostError('unknown-function', `there is no function '${functionName}'`);
    const now = store.traffic(functionName) ?? allTo(current.version);
    const wanted = change(now);
    const joining = wanted.shares.map(({ version }) => version).filter((version) => shareOf(now, version) === 0);
    for (const version of joining) await this.#warmUp(this.#versionOf(functionName, version), current);
    const traffic = await store.changeTraffic(functionName, change);
    this.#told(functionName, now, traffic);
    this.#retry(functionName, now, traffic, onTrial);
    return traffic;
  }

  /** Gives a version all calls, or `percent` of them and the rest to the version that serves most. */
  async promote({ name, version }: FunctionVersion, percent = 100): Promise<Traffic> {
    return await this.change(name, (now) => promoted(now, version, percent));
  }

  /**
   * Gives all calls to the version that served before the latest change: where they are divided, to the one that gives
   * some to the newcomer.
   *
   * @throws HostError 'no-version-before'
   */
  async rollBack(functionName: string): Promise<Traffic> {
    const { store } = this.#options;
    const back = (now: Traffic): Traffic => {
      const current = primaryOf(now);
      const isNewcomer = now.before !== undefined && shareOf(now, now.before) > 0;
      if (now.shares.length > 1 && !isNewcomer && current !== undefined) return promoted(now, current, 100);
      const versions = store.versions(functionName).map(({ version }) => version);
      const before = now.before ?? versions[versions.indexOf(current ?? '') - 1];
      if (before === undefined || before === current) {
        throw new HostError(
          'no-version-before',
          `function '${functionName}' has no version that served before ${current}`,
        );
      }
      // Drops the record of the version before: another rollback goes back one version further.
      return { ...promoted(now, before, 100), before: undefined };
    };
    // An operator who rolls back has a reason that goodput does not show, such as wrong answers: the version gets no
    // calls back automatically.
    return await this.change(functionName, back, false);
  }

  record({ functionName, version, outcome }: InvocationRecord): void {
    const trial = this.#trials.get(functionName);
    if (trial?.version !== version || outcome === undefined || outcome === 'shed') return;
    trial.answers++;
    if (outcome === 'failed') trial.failed++;
    this.#judge(functionName, trial);
  }

  #judge(functionName: string, trial: Trial): void {
    const verdict = verdictOf(trial);
    if (verdict === 'undecided') return;
    this.#end(functionName);
    const { logger } = this.#options;
    if (verdict === 'passed') {
      logger.info({ function: functionName, version: trial.version }, 'a new version has passed its trial');
      return;
    }
    void this.#fallBack(functionName, trial).catch((error: unknown) => {
      logger.error({ err: error, function: functionName }, 'a version whose calls fail could not be taken out');
    });
  }

  async #fallBack(functionName: string, { version, from, answers, failed }: Trial): Promise<void> {
    const reason = `${failed} of its first ${answers} calls failed`;
    const { store, logger, eventLog } = this.#options;
    const fellBack = { version, reason, atMs: Date.now() };
    await store.changeTraffic(functionName, (now) => ({ ...moved(now, version, from), fellBack }));
    logger.warn({ function: functionName, version, to: from, reason }, 'a new version was taken out of service');
    const message = `Version ${version} was taken out of service, version ${from} serves again: ${reason}`;
    eventLog.add({ kind: 'traffic', functionName, message, level: 'warning' });
  }

  /**
   * Puts the version whose share grew on trial against the one that served most. Any other change leaves the version on
   * trial that is, unless it gets no calls any more or is to keep them.
   */
  #retry(functionName: string, before: Traffic, after: Traffic, onTrial: boolean): void {
    const from = primaryOf(before);
    const grown = after.shares.find(({ version, percent }) => version !== from && percent > shareOf(before, version));
    const tried = this.onTrial(functionName);
    const isOver = grown !== undefined || tried === undefined || shareOf(after, tried) === 0;
    if (isOver || !onTrial || !after.fallback) this.#end(functionName);
    if (!onTrial || !after.fallback || from === undefined || grown === undefined) return;
    this.#trials.set(functionName, { version: grown.version, from, answers: 0, failed: 0 });
    this.#options.recorders.add(this);
  }

  #end(functionName: string): void {
    this.#trials.delete(functionName);
    if (this.#trials.size === 0) this.#options.recorders.delete(this);
  }

  #told(functionName: string, before: Traffic, after: Traffic): void {
    if (sharesText(before) === sharesText(after)) return;
    const { logger, eventLog } = this.#options;
    logger.info({ function: functionName, traffic: sharesText(after) }, 'traffic changed');
    const message = `Traffic: ${sharesText(after)} (before: ${sharesText(before)})`;
    eventLog.add({ kind: 'traffic', functionName, message, level: 'info' });
  }

  #versionOf(name: string, version: string): FunctionVersion {
    const found = this.#options.store.find(name, version);
    if (found !== undefined) return found;
    throw new HostError('unknown-version', `function '${name}' has no version '${version.slice(0, 80)}'`);
  }

  /** Loads the version, and calls it once if the function has an example. Throws HostError 'warm-up-failed', or that the machine is short. */
  async #warmUp(asked: FunctionVersion, serving: FunctionVersion): Promise<void> {
    const { invoker, logger, eventLog } = this.#options;
    const { name, version } = asked;
    try {
      const ready = await invoker.ready(asked);
      await invoker.load(ready);
      await this.#callExample(ready);
    } catch (error) {
      const { code, message: reason } = toHostError(error);
      logger.warn({ function: name, version, reason }, 'the warm-up of a version failed');
      const still = `version ${serving.version} goes on`;
      const message = `Version ${version} does not serve: its warm-up failed (${reason}); ${still}`;
      eventLog.add({ kind: 'traffic', functionName: name, message, level: 'warning' });
      throw new HostError(
        ofTheMachine.has(code) ? code : 'warm-up-failed',
        `version ${version} of function '${name}' does not serve, because its warm-up failed: ${reason}; ` +
          `version ${serving.version} goes on serving`,
        { cause: error },
      );
    }
  }

  async #callExample(version: FunctionVersion): Promise<void> {
    const { example } = version.settings;
    if (example === undefined || example.startsWith('@')) return;
    const body = Buffer.from(example);
    const headers = { 'content-type': 'application/x-www-form-urlencoded' };
    const request = { method: 'POST', url: `/function/${version.name}`, headers, body };
    const input: PoolInput =
      version.handlerPath === undefined
        ? { kind: 'tensors', tensors: (await runInSlices(decodePlain(body, specOf(version)))).tensors }
        : { kind: 'request', request };
    const output = await this.#options.invoker.tryOut(version, input);
    if (output.kind === 'response' && output.response.status >= 500) {
      throw new HostError('handler-failed', `it answers its own example with the status ${output.response.status}`);
    }
  }
}

const shareOf = ({ shares }: Traffic, version: string): number =>
  shares.find((share) => share.version === version)?.percent ?? 0;

/** Versions keep their order, so that a growing share keeps the keys that it has. */
function promoted(now: Traffic, version: string, percent: number): Traffic {
  const others = now.shares.filter((share) => share.version !== version);
  const rest = percent === 100 ? undefined : primaryOf({ ...now, shares: others });
  if (percent < 100 && rest === undefined) {
    const left = `no other version is there to take the other ${100 - percent}%`;
    throw new HostError('bad-request', `version ${version} gets all calls, and ${left}: give these to one`);
  }
  const percentOf = (each: string): number => (each === version ? percent : each === rest ? 100 - percent : 0);
  const versions = new Set([...now.shares.map((share) => share.version), version]);
  const shares = [...versions].map((each) => ({ version: each, percent: percentOf(each) }));
  return divided(now, { shares: shares.filter((share) => share.percent > 0) });
}

const sharesText = ({ shares }: Traffic): string =>
  shares.map(({ version, percent }) => `version ${version} ${Math.round(percent * 100) / 100}%`).join(', ');

/** Fewer answers say nothing. */
const answersMin = 20;
/** A version that is still there after this many answers has passed its trial. */
const trialAnswersMax = 500;
/** The version is taken out when at least this share of its calls failed. */
const failedShareMin = 0.5;

/** Calls that were shed do not count: they only say that the host is full. */
export type TrialVerdict = 'undecided' | 'passed' | 'failed';

/** Judges a new version by its answers since it got calls. */
export function verdictOf({ answers, failed }: Pick<Trial, 'answers' | 'failed'>): TrialVerdict {
  if (answers >= answersMin && failed / answers >= failedShareMin) return 'failed';
  return answers >= trialAnswersMax ? 'passed' : 'undecided';
}
