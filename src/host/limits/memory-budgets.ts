/**
 * How memory is divided now: as at the start, or at the last change of the control group's limit, less what was taken
 * from budgets whose processes the kernel has ended.
 */
import type { Logger } from 'pino';
import {
  divideMemory,
  memoryParts,
  readMemory,
  shrunkBytes,
  type GivenMemory,
  type MemoryBudget,
  type MemoryDivision,
  type MemoryPart,
} from '../../hardware/index.ts';
import { heap, runningProcesses, type KernelKill, type ProcessMemory } from '../../process/index.ts';
import { formatBytes, statusBytes } from '../../tools/index.ts';

/** A process that the kernel ended for lack of memory. */
export interface MemoryKill {
  readonly atMs: number;
  readonly pid: number;
  /** What its memory belonged to. */
  readonly part: MemoryPart | undefined;
  /** What was done about it, in a sentence. */
  readonly text: string;
}

/** What parts of the memory hold whose use their owners count. */
export interface HeldMemory {
  readonly sessions: number;
  readonly inFlight: number;
  readonly pinned: number;
}

export interface UsedMemory {
  readonly parts: Partial<MemoryDivision>;
  /** This process and its children, the largest first; empty where the system does not tell. */
  readonly processes: readonly {
    readonly pid: number;
    readonly part: MemoryPart | undefined;
    /** RES of `top`: pages that processes share count in each. */
    readonly residentBytes: number;
  }[];
}

/** Budgets that can be smaller than they are, and the processes whose end makes them so. */
const shrinking: Partial<Record<MemoryPart, 'sessions' | 'pinned'>> = {
  sessions: 'sessions',
  pinned: 'pinned',
};

const killsKept = 20;
/** Containers are resized while they run (Kubernetes: in-place resize). */
const lookMs = 10_000;
/** Node collects garbage once there are some 256 MB of it. A host that may have less does so after so much. */
const garbageBytesMax = 32 * 2 ** 20;

export interface MemoryBudgetsOptions {
  readonly budget: MemoryBudget;
  readonly logger: Pick<Logger, 'warn'>;
  readonly held: () => HeldMemory;
  /** What the host may use now; default: asks the system. */
  readonly ownBytes?: () => number;
  /** The memory of the host itself. */
  readonly memory?: ProcessMemory;
  /** For the page's events. */
  readonly onKill: (text: string) => void;
  readonly onChange: (part: 'sessions' | 'pinned', bytes: number) => void;
}

export class MemoryBudgets {
  readonly #options: MemoryBudgetsOptions;
  readonly #timer: NodeJS.Timeout;
  #budget: MemoryBudget;
  /** What was taken from budgets. */
  #shrunk: GivenMemory = {};
  #parts: Record<MemoryPart, number>;
  readonly #kills: MemoryKill[] = [];
  /** What the host itself held after it had last collected its garbage. */
  #collectedBytes = 0;
  readonly #killsByPart = new Map<MemoryPart | 'other', number>();

  constructor(options: MemoryBudgetsOptions) {
    this.#options = options;
    this.#budget = options.budget;
    this.#parts = { ...options.budget.parts };
    this.#timer = setInterval(() => this.look(), lookMs);
    this.#timer.unref();
  }

  get totalBytes(): number {
    return this.#budget.totalBytes;
  }

  get parts(): MemoryDivision {
    return this.#parts;
  }

  /** What is used of each part now. */
  used(): UsedMemory {
    const held = this.#options.held();
    const processes = [[process.pid, 'host'] as const, ...runningProcesses]
      .flatMap(([pid, purpose]) => {
        const bytes = statusBytes('VmRSS', pid);
        return bytes === undefined ? [] : [{ pid, part: partNamed(purpose), residentBytes: bytes }];
      })
      .toSorted((one, other) => other.residentBytes - one.residentBytes);
    const inProcesses = (part: MemoryPart): number =>
      processes.reduce((sum, each) => (each.part === part ? sum + each.residentBytes : sum), 0);
    return {
      processes,
      parts: {
        ...held,
        host: Math.max(0, inProcesses('host') - held.inFlight),
        loads: inProcesses('loads'),
        // The GPU process holds the pinned memory.
        gpuProcess: Math.max(0, inProcesses('pinned') - held.pinned),
        validators: inProcesses('validators'),
      },
    };
  }

  /** The latest, the newest first. */
  get kills(): readonly MemoryKill[] {
    return this.#kills;
  }

  /** How many there were, by what their memory belonged to. */
  get killCounts(): ReadonlyMap<MemoryPart | 'other', number> {
    return this.#killsByPart;
  }

  close(): void {
    clearInterval(this.#timer);
  }

  /** Divides anew if the limit has changed, and keeps the host within its part. */
  look(): void {
    this.#keepWithin();
    const { ownBytes = () => readMemory().ownBytes, logger, onChange } = this.#options;
    const [before, { user, given }] = [this.totalBytes, this.#budget];
    const totalBytes = ownBytes();
    if (totalBytes === before) return;
    this.#budget = divideMemory(totalBytes, user, given);
    this.#parts = { ...this.#budget.parts };
    this.#shrunk = {};
    const { warning } = this.#budget;
    const text = `this host may use ${formatBytes(totalBytes)} instead of ${formatBytes(before)}: memory is divided anew`;
    logger.warn({ parts: this.#parts }, warning === undefined ? text : `${text}; ${warning}`);
    for (const part of ['sessions', 'pinned'] as const) onChange(part, this.#parts[part]);
  }

  #keepWithin(): void {
    const { held, memory = heap } = this.#options;
    const ownBytes = (): number => memory.residentBytes() - held().inFlight;
    const bytes = ownBytes();
    if (bytes <= this.#parts.host || bytes - this.#collectedBytes < garbageBytesMax) return;
    memory.collect();
    memory.trim();
    this.#collectedBytes = ownBytes();
  }

  /** The kernel has ended a process: the budget that it took from is halved, so that the same does not happen again. */
  killed({ pid, purpose }: KernelKill): void {
    const part = partNamed(purpose);
    this.#killsByPart.set(part ?? 'other', (this.#killsByPart.get(part ?? 'other') ?? 0) + 1);
    const whose = part === undefined ? 'a process of this host' : `a process for ${memoryParts[part]}`;
    const shrunk = part === undefined ? undefined : shrinking[part];
    // Less of it makes loads wait for each other sooner, and leaves preparers out.
    if (part === 'loads') {
      this.#parts.loads = shrunkBytes(this.#parts.loads, this.#budget.parts.loads);
      this.#options.onChange('sessions', this.#parts.sessions);
    }
    const text = `the kernel ended ${whose} for lack of memory (oom_kill)${this.#shrink(shrunk)}`;
    this.#kills.unshift({ atMs: Date.now(), pid, part, text });
    this.#kills.length = Math.min(this.#kills.length, killsKept);
    this.#options.logger.warn({ pid, budget: part }, text);
    this.#options.onKill(text);
  }

  /** Returns the end of a sentence about it. */
  #shrink(part: 'sessions' | 'pinned' | undefined): string {
    if (part === undefined) return '';
    const { totalBytes, user, given, parts } = this.#budget;
    const before = this.#parts[part];
    // More than there is was never there.
    const after = shrunkBytes(Math.min(before, totalBytes), Math.min(parts[part], totalBytes));
    if (after >= before) return `; ${memoryParts[part]} stays at its least, ${formatBytes(before)}`;
    this.#shrunk = { ...this.#shrunk, [part]: after };
    this.#parts = this.#divided(divideMemory(totalBytes, user, { ...given, ...this.#shrunk }).parts);
    for (const each of ['sessions', 'pinned'] as const) this.#options.onChange(each, this.#parts[each]);
    return `; ${memoryParts[part]} was ${formatBytes(before)} and is ${formatBytes(after)} from now on`;
  }

  /** What shrinks makes room for parts that had less than usual, and for no others: it may be that all was too much. */
  #divided(parts: MemoryDivision): Record<MemoryPart, number> {
    const { totalBytes, user, given } = this.#budget;
    const usual = divideMemory(totalBytes, user).parts;
    const set: Partial<MemoryDivision> = { ...given, ...this.#shrunk } as Partial<MemoryDivision>;
    const after = { ...this.#parts };
    for (const part of Object.keys(after) as MemoryPart[]) {
      after[part] = set[part] === undefined ? Math.max(after[part], Math.min(parts[part], usual[part])) : parts[part];
    }
    return after;
  }
}

const partNamed = (purpose: string | undefined): MemoryPart | undefined =>
  purpose !== undefined && Object.hasOwn(memoryParts, purpose) ? (purpose as MemoryPart) : undefined;
