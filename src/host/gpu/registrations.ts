/**
 * Which functions the GPU process has: every ready version is registered there in the background, its layers are measured when
 * nothing runs, it is planned, and then the scheduler is told of it. After the end of a process all of them are brought back to the
 * next one, the latest used first.
 */
import { join } from 'node:path';
import type { Logger } from 'pino';
import { GpuError, type GpuClient, type GpuCoverage, type InputShapes } from '../../gpu/index.ts';
import type { Machine } from '../../hardware/index.ts';
import type { ColdStartMode } from '../../plan/index.ts';
import type { LayerProfile } from '../../profile/index.ts';
import type { FunctionVersion, Registry } from '../types.ts';
import { shapesOf } from './input-shapes.ts';
import { LadderPlanner } from './ladder-planner.ts';
import { makeLadder, type LadderKind } from './ladders.ts';
import { forgetPlans, makePlans, structureOf, writePlans, type FunctionPlans, type ProfileShelf } from './plan-book.ts';
import type { GpuShell } from './shell.ts';
import type { ShippedPlans } from './shipped-plans.ts';
import { Suspects } from './suspects.ts';
import { Turns } from './turns.ts';

/** Where a function stands with the GPUs. */
export type GpuStanding =
  | { readonly status: 'waiting' }
  /** `estimated`: where the plan is from until the function has been measured here. */
  | {
      readonly status: 'planned';
      readonly mode: string;
      /** Of all its weights, those included that its plan leaves in host memory. */
      readonly weightBytes: number;
      readonly estimated?: string;
    }
  /** Served by the CPU pool for good; the reason names the operator. */
  | { readonly status: 'refused'; readonly reason: string };

/** What there is once the GPU process is up for the first time. */
export interface GpuGround {
  readonly machine: Machine;
  /** Names the GPUs and the driver: what was measured on others counts for nothing here. */
  readonly machineName: string;
  readonly shelf: ProfileShelf;
  readonly shell: GpuShell;
}

/** What is asked of the GPU process here. */
export type RegistrationsClient = Pick<
  GpuClient,
  'register' | 'registerAgain' | 'unregister' | 'measure' | 'evict' | 'measureOperators' | 'addPlan' | 'dropPlan'
>;

export interface RegistrationsOptions {
  readonly client: RegistrationsClient;
  readonly registry: Registry;
  readonly logger: Logger;
  readonly dataDir: string;
  readonly mode: ColdStartMode;
  /** Repetitions of each measurement of a layer. */
  readonly iterations: number;
  /** Plans over GPU and CPU, and the cores that they may use. */
  readonly ladder: { readonly kind: LadderKind; readonly cores: number };
  /** Resolves when no invocation runs on a GPU. */
  readonly whenIdle: () => Promise<void>;
  readonly shippedPlans: ShippedPlans;
  /** Told of a pinned function that can run. */
  readonly onPinned: (version: FunctionVersion) => void;
}

/**
 * Registrations under way at a time. Programs come from one compiler; what goes on beside it is the binding of what it made to each
 * GPU, and the reading of weights.
 */
const registrationsAtOnce = 4;
/** Into which the longest recurrent operator of a function is unrolled: two halves of a network then wait a twelfth of a run for each other. */
const cells = 12;
const measuringAttemptsMax = 3;

export class Registrations {
  readonly #options: RegistrationsOptions;
  readonly #standings = new Map<string, GpuStanding>();
  readonly #known = new Map<string, FunctionVersion>();
  /** Those that the process that runs now has, and that can be invoked. */
  readonly #present = new Set<string>();
  /** Those that the client has, and brings back to each new process. */
  readonly #covered = new Set<string>();
  readonly #suspects = new Suspects();
  /** Those refused for want of room, while pinned functions had some of it. */
  readonly #crowdedOut = new Map<string, FunctionVersion>();
  /** By function, its work so far: what comes later is done later. */
  readonly #work = new Map<string, Promise<void>>();
  readonly #registering = new Turns(registrationsAtOnce);
  readonly #measuring = new Turns(1);
  readonly #planner = new LadderPlanner();
  #ground: GpuGround | undefined;
  #phase: 'down' | 'up' | 'closed' = 'down';
  /** Counts processes: what was registered with an earlier one is not here. */
  #life = 0;
  #waitingForUp: (() => void)[] = [];

  constructor(options: RegistrationsOptions) {
    this.#options = options;
    options.registry.onChange(({ before, after }) => this.#changed(before, after));
  }

  standing(key: string): GpuStanding | undefined {
    return this.#standings.get(key);
  }

  /** Whether the process has it and the scheduler knows it. */
  isPresent(key: string): boolean {
    return this.#present.has(key);
  }

  /** Resolves when everything that was ready so far is planned or refused, and present. */
  async settled(): Promise<void> {
    while (this.#work.size > 0) await Promise.all(this.#work.values());
  }

  /** Resolves when this function is planned or refused, and present; at once where it is. */
  async planned(key: string): Promise<void> {
    // Under an estimated plan it is, though its measurement is still to come.
    if (!this.#present.has(key)) await this.#work.get(key);
  }

  /** The process is up; the first time with everything else that is needed. */
  up(ground: GpuGround): void {
    this.#ground = ground;
    if (this.#phase === 'closed') return;
    const isFirst = this.#life++ === 0;
    this.#phase = 'up';
    if (!isFirst) this.#bringBack(ground.shell);
    for (const go of this.#waitingForUp.splice(0)) go();
  }

  down(): void {
    if (this.#phase === 'up') {
      this.#phase = 'down';
      this.#suspects.died();
    }
    this.#present.clear();
  }

  /** There will be no process any more. */
  async close(): Promise<void> {
    this.#phase = 'closed';
    this.#present.clear();
    for (const go of this.#waitingForUp.splice(0)) go();
    await this.settled();
  }

  #changed(before: FunctionVersion | undefined, after: FunctionVersion | undefined): void {
    if (this.#phase === 'closed') return;
    this.#follow(before, after);
    // Which version of its function is the one that serves may have changed, and with it whose the pin is.
    const changed = after ?? before;
    for (const { key } of changed === undefined ? [] : this.#options.registry.versions(changed.name)) {
      const other = this.#known.get(key);
      if (key !== changed?.key && other?.settings.pinned === true) this.#offerAgain(other);
    }
  }

  #follow(before: FunctionVersion | undefined, after: FunctionVersion | undefined): void {
    const known = after === undefined ? undefined : this.#known.get(after.key);
    const isReady = after?.state.status === 'ready';
    if (before !== undefined && (after === undefined || !isReady)) this.#forget(before.key);
    if (!isReady) return;
    if (known !== undefined && known.modelSha256 === after.modelSha256 && known.modelPath === after.modelPath) {
      this.#known.set(after.key, after);
      this.#offerAgain(after);
      return;
    }
    if (known !== undefined) this.#forget(after.key);
    this.#known.set(after.key, after);
    this.#standings.set(after.key, { status: 'waiting' });
    this.#enqueueRegistration(after);
  }

  #enqueueRegistration(version: FunctionVersion): void {
    this.#enqueue(version.key, async () => {
      // Not with a turn in hand: what the last process had is to go first.
      await this.#whenUp();
      await this.#takeTurn(version.key, () => this.#register(version));
    });
  }

  #takeTurn(key: string, work: () => Promise<void>): Promise<void> {
    return this.#registering.take(() => this.#suspects.during(key, work), this.#suspects.has(key));
  }

  #forget(key: string): void {
    if (!this.#known.delete(key)) return;
    this.#standings.delete(key);
    this.#suspects.clear(key);
    this.#crowdedOut.delete(key);
    const wasPinned = this.#ground?.shell.sheetOf(key)?.pinned === true;
    this.#present.delete(key);
    this.#enqueue(key, async () => {
      await forgetPlans(join(this.#options.dataDir, 'plans'), key);
      await this.#takeOut(key);
      if (wasPinned) this.#pinIsGone();
    });
  }

  /** Neither the scheduler nor the process has it any more. */
  async #takeOut(key: string): Promise<void> {
    this.#present.delete(key);
    await this.#ground?.shell.remove(key);
    if (this.#covered.delete(key)) await unlessItDied(this.#options.client.unregister(key));
  }

  /** Those for which it left no room are tried again. */
  #pinIsGone(): void {
    const crowdedOut = [...this.#crowdedOut.values()];
    this.#crowdedOut.clear();
    for (const version of crowdedOut) {
      if (this.#phase === 'closed' || !this.#isWanted(version)) continue;
      this.#standings.set(version.key, { status: 'waiting' });
      this.#enqueueRegistration(version);
    }
  }

  /** Another SLO, another pin: the plans stand. */
  #offerAgain(version: FunctionVersion): void {
    const shell = this.#ground?.shell;
    const plans = shell?.plansOf(version.key);
    if (shell === undefined || plans === undefined) return;
    const wasPinned = shell.sheetOf(version.key)?.pinned === true;
    shell.offer(version.key, plans, this.#settingsOf(version));
    if (!wasPinned) this.#tellOfPin(version);
    else if (shell.sheetOf(version.key)?.pinned === false) this.#pinIsGone();
  }

  /** A pin keeps the version that serves; the ones that it has replaced stay for as long as nobody needs their room. */
  #settingsOf(version: FunctionVersion): FunctionVersion['settings'] {
    const { name, key, settings } = version;
    return { ...settings, pinned: settings.pinned && this.#options.registry.find(name)?.key === key };
  }

  #tellOfPin(version: FunctionVersion): void {
    if (this.#present.has(version.key) && this.#settingsOf(version).pinned) this.#options.onPinned(version);
  }

  async #register(version: FunctionVersion): Promise<void> {
    const { key, metadata } = version;
    const ground = this.#ground;
    if (this.#phase === 'closed' || ground === undefined || metadata === undefined || !this.#isWanted(version)) return;
    if (this.#phase === 'down') {
      this.#enqueueRegistration(version);
      return;
    }
    const life = this.#life;
    const shapes = shapesOf(metadata);
    try {
      const hybrid = this.#hasLadders ? { hybrid: { cells } } : {};
      const coverage = await this.#options.client.register({ key, modelPath: version.modelPath, shapes, ...hybrid });
      if (coverage.covered || coverage.layers !== undefined) this.#covered.add(key);
      if (coverage.covered) await this.#offerShipped(version, coverage, shapes, ground, life);
      const plans = await this.#plansFor(version, coverage, shapes, ground, life);
      if (plans !== undefined) await this.#offer(version, plans, coverage, ground, life);
      else if (!coverage.covered) {
        this.#refuse(key, whyNotCovered(coverage));
        await this.#takeOut(key);
      }
      this.#suspects.clear(key);
    } catch (error) {
      await this.#failed(version, error, life);
    }
  }

  get #hasLadders(): boolean {
    const { kind, cores } = this.#options.ladder;
    return kind !== 'off' && cores > 0;
  }

  /** Undefined for a function that no plan can run here. */
  async #plansFor(
    version: FunctionVersion,
    coverage: GpuCoverage,
    shapes: InputShapes,
    { machine, machineName, shelf }: GpuGround,
    life: number,
  ): Promise<FunctionPlans | undefined> {
    const { client, logger, dataDir, mode, ladder, iterations } = this.#options;
    const profile = coverage.covered ? await this.#profile(version, coverage, shapes, shelf) : undefined;
    const plans = profile && makePlans(profile, machine, mode);
    if (!this.#hasLadders) return plans;
    const subject = { key: version.key, name: version.name, coverage, shapes, profile, plans, machine, mode };
    const options = {
      client,
      planner: this.#planner,
      logger,
      folder: join(dataDir, 'plans', 'profiles'),
      machineName: `${machineName}; ${ladder.cores} cores`,
      ...ladder,
      iterations,
      measure: <T>(work: () => Promise<T>): Promise<T> =>
        this.#takeMeasuringTurn(version.key, () => this.#alone(version.key, coverage.layers ?? [], work)),
    };
    try {
      return (await makeLadder(options, { ...subject, sloMs: version.settings.sloMs })) ?? plans;
    } catch (error) {
      // Where all of it runs on the GPU, it does so with nothing else to choose from.
      if (plans === undefined || life !== this.#life || (error instanceof GpuError && isOfProcess(error))) throw error;
      logger.warn({ function: version.key, err: error }, 'no plans over GPU and CPU');
      return plans;
    }
  }

  /** A plan that ships with the project serves a function that has not been measured on this machine yet. */
  async #offerShipped(
    version: FunctionVersion,
    coverage: Extract<GpuCoverage, { covered: true }>,
    shapes: InputShapes,
    ground: GpuGround,
    life: number,
  ): Promise<void> {
    if ((await ground.shelf.find(structureOf(coverage, shapes), coverage.layers)) !== undefined) return;
    const { mode, logger, shippedPlans } = this.#options;
    const found = await shippedPlans.find(
      coverage.layers,
      ground.machine.gpus.map(({ model }) => model),
    );
    if (found === undefined) return;
    const plans = makePlans(found.profile, ground.machine, mode, found.methodsOf(mode));
    await this.#offer(version, plans, coverage, ground, life, found.source);
    logger.info({ function: version.key, plan: found.source }, 'planned until it is measured');
  }

  async #offer(
    version: FunctionVersion,
    plans: FunctionPlans,
    { layers = [] }: GpuCoverage,
    ground: GpuGround,
    life: number,
    estimated?: string,
  ): Promise<void> {
    const { dataDir } = this.#options;
    await writePlans(join(dataDir, 'plans'), version.key, plans);
    // Its settings may have changed meanwhile; with another model it is another registration's.
    const latest = this.#known.get(version.key);
    if (latest === undefined || !this.#isWanted(version)) return;
    ground.shell.offer(version.key, plans, this.#settingsOf(latest));
    this.#standings.set(version.key, {
      status: 'planned',
      mode: plans.mode,
      weightBytes: layers.reduce((sum, { bytes }) => sum + bytes, 0),
      ...(estimated === undefined ? {} : { estimated }),
    });
    if (life !== this.#life) await this.#bring(version.key, this.#life);
    else if (this.#phase === 'up') {
      this.#present.add(version.key);
      this.#tellOfPin(latest);
    }
  }

  async #profile(
    version: FunctionVersion,
    coverage: Extract<GpuCoverage, { covered: true }>,
    shapes: InputShapes,
    shelf: ProfileShelf,
  ): Promise<LayerProfile> {
    const structure = structureOf(coverage, shapes);
    return (
      (await shelf.find(structure, coverage.layers)) ??
      (await this.#takeMeasuringTurn(version.key, async () => {
        // Another of the same structure may have been measured while this one waited.
        const kept = await shelf.find(structure, coverage.layers);
        if (kept !== undefined) return kept;
        const { client, iterations } = this.#options;
        await this.#whenIdle(version.key);
        await this.#takeBack(version.key);
        const measured = await this.#alone(version.key, coverage.layers, () =>
          client.measure(version.key, { gpu: 0, iterations }),
        );
        await shelf.keep(structure, version.name, { unit: measured.unit, layers: measured.layers });
        return measured;
      }))
    );
  }

  #takeMeasuringTurn<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.#suspects.apart(key, () => this.#measuring.take(() => this.#suspects.during(key, work)));
  }

  #whenIdle(key: string): Promise<void> {
    return this.#suspects.apart(key, this.#options.whenIdle);
  }

  /** Measures when nothing runs on a GPU, where there is room for all of the function's weights. They are given back afterwards. */
  async #alone<T>(key: string, layers: readonly { readonly bytes: number }[], work: () => Promise<T>): Promise<T> {
    const { client } = this.#options;
    const bytes = layers.reduce((sum, layer) => sum + layer.bytes, 0);
    for (let attempt = 1; ; attempt++) {
      // What is measured beside other work is neither here nor there.
      await this.#whenIdle(key);
      await this.#ground?.shell.freeBytes(0, bytes);
      try {
        return await work();
      } catch (error) {
        // An invocation that came meanwhile may have taken the room.
        const isFull = error instanceof GpuError && error.code === 'out-of-memory';
        if (!isFull || attempt === measuringAttemptsMax) throw error;
      } finally {
        await unlessItDied(client.evict(key, 0));
      }
    }
  }

  /** What a shipped plan has brought to a GPU goes before the layers are measured; the CPU pool has the function meanwhile. */
  async #takeBack(key: string): Promise<void> {
    if (this.#standings.get(key)?.status !== 'planned') return;
    this.#present.delete(key);
    this.#standings.set(key, { status: 'waiting' });
    await this.#ground?.shell.remove(key);
  }

  /** @param life when the process was first asked */
  async #failed(version: FunctionVersion, error: unknown, life: number): Promise<void> {
    const { key } = version;
    if (this.#phase === 'closed' || !this.#isWanted(version)) return;
    let reason = error instanceof Error ? error.message : String(error);
    // What was asked of a process that has another's place now it cannot know.
    const hasEnded = this.#phase === 'down' || life !== this.#life;
    if (hasEnded || (error instanceof GpuError && isOfProcess(error))) {
      if (!hasEnded) this.#suspects.blame(key);
      if (!this.#suspects.isGuilty(key)) {
        this.#enqueueRegistration(version);
        return;
      }
      reason = `again and again while it alone was being brought to the GPUs, ${reason}`;
    } else if (error instanceof GpuError && isOfRoom(error) && this.#isAnyPinned()) this.#crowdedOut.set(key, version);
    this.#refuse(key, reason);
    await this.#takeOut(key);
  }

  #isAnyPinned(): boolean {
    const shell = this.#ground?.shell;
    return [...(shell?.keys() ?? [])].some((key) => shell?.sheetOf(key)?.pinned === true);
  }

  #refuse(key: string, reason: string): void {
    this.#standings.set(key, { status: 'refused', reason });
    this.#options.logger.info({ function: key, reason }, 'stays on the CPU pool');
  }

  /** All that the last process had, the latest used first: a few at a time, each served as soon as it is there. */
  #bringBack(shell: GpuShell): void {
    const idleMs = (key: string): number => shell.placeOf(key)?.idleMs ?? Infinity;
    const keys = [...this.#standings].flatMap(([key, { status }]) => (status === 'planned' ? [key] : []));
    const life = this.#life;
    for (const key of keys.toSorted((one, other) => compare(idleMs(one), idleMs(other)))) {
      this.#enqueue(key, () => this.#takeTurn(key, () => this.#bring(key, life)));
    }
  }

  async #bring(key: string, life: number): Promise<void> {
    const before = this.#known.get(key);
    if (life !== this.#life || this.#phase !== 'up' || before === undefined) return;
    try {
      await this.#options.client.registerAgain(key);
    } catch (error) {
      const isOver = this.#phase !== 'up' || life !== this.#life;
      // The next process gets it with everything else.
      if (!isOver || this.#suspects.isGuilty(key)) await this.#failed(before, error, life);
      return;
    }
    const version = this.#known.get(key);
    if (life !== this.#life || this.#phase !== 'up' || version === undefined) return;
    this.#suspects.clear(key);
    this.#present.add(key);
    this.#tellOfPin(version);
  }

  #isWanted(version: FunctionVersion): boolean {
    const known = this.#known.get(version.key);
    return known?.modelSha256 === version.modelSha256 && known.modelPath === version.modelPath;
  }

  /** Undefined where there will be no process. */
  async #whenUp(): Promise<GpuGround | undefined> {
    while (this.#phase === 'down') await new Promise<void>((resolve) => this.#waitingForUp.push(resolve));
    return this.#phase === 'up' ? this.#ground : undefined;
  }

  #enqueue(key: string, work: () => Promise<void>): void {
    const done = (this.#work.get(key) ?? Promise.resolve())
      .then(work)
      .catch((error: unknown) => {
        if (this.#phase === 'closed') return;
        this.#options.logger.warn({ err: error, function: key }, 'background work for the GPUs failed');
      })
      .finally(() => {
        if (this.#work.get(key) === done) this.#work.delete(key);
      });
    this.#work.set(key, done);
  }
}

/** Whether the process that was asked is to blame, or gone. */
const isOfProcess = (error: GpuError): boolean => error.retriable && !isOfRoom(error);

/** Whether others had what it needed. */
const isOfRoom = ({ code }: GpuError): boolean => code === 'out-of-memory' || code === 'host-memory';

/** Resolves to false where the process was to blame, or is gone. */
async function unlessItDied(work: Promise<unknown>): Promise<boolean> {
  try {
    await work;
    return true;
  } catch (error) {
    if (error instanceof GpuError && isOfProcess(error)) return false;
    throw error;
  }
}

/** Infinities included, of which no difference can be made. */
const compare = (one: number, other: number): number => (one === other ? 0 : one < other ? -1 : 1);

function whyNotCovered({ obstacles }: Extract<GpuCoverage, { covered: false }>): string {
  const [first, ...others] = obstacles;
  if (first === undefined) return 'it is not covered';
  const more = others.length > 0 ? `, and ${others.length} more` : '';
  return `${first.operator} (${first.node}): ${first.reason}${more}`;
}
