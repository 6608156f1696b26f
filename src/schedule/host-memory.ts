/**
 * Pinned host memory and the disk behind it. Its unit is a block, which several functions may have. A function needs its
 * blocks here to be loaded to a GPU, and those that it executes from as long as anything of it is on one. What is whole
 * on a GPU needs no copy of the others here, so host memory and GPUs together hold more than either.
 *
 * The disk reads one function at a time. Room is taken for the one being read and the next; all others wait in an order
 * by value, and nothing goes that is worth more than what comes.
 */
import { takeOut } from './columns.ts';
import type { ServedFunction } from './function.ts';
import type { Gpu } from './gpu.ts';
import { ValueOrder } from './heap.ts';
import { Block, Copy, sumOf } from './host-blocks.ts';
import { HostUses, type HostUseFacts } from './host-uses.ts';
import { HostValues, type HostValueFacts } from './host-values.ts';
import type { HostBlock } from './offer.ts';
import type { Policy } from './policy.ts';
import { WantedReads } from './wanted-reads.ts';
import { tuning } from './tuning.ts';
import type { Orders } from './orders.ts';
import type { HostTier, StageObservation } from './types.ts';

const noBlocks: readonly HostBlock[] = [];
const { heldMs, readAhead } = tuning.hostMemory;
const { overdueShare } = tuning.queues;

interface Shared extends HostValueFacts, HostUseFacts {
  readonly policy: Policy;
  readonly orders: Orders;
  readonly gpus: readonly Gpu[];
  readonly pinnedOn: Gpu[];
}

/**
 * What a claim waits for: layers of a former sheet to go, the read under way, its turn to be read, or, since there can
 * never be room for it, its calls to go elsewhere. `nobody`: for ever.
 */
export type HostWait = 'nothing' | 'what it had' | 'its read' | 'its turn' | 'another place' | 'nobody';

export class HostMemory {
  readonly #policy: Policy;
  readonly #orders: Orders;
  readonly #slots: Shared['slots'];
  /** Its GPUs are made after this. */
  readonly #shared: Pick<Shared, 'gpus' | 'pinnedOn'>;
  readonly #uses: HostUses;
  readonly #values: HostValues;
  #capacityBytes: number;
  readonly #copies = new Map<ServedFunction, Copy>();
  readonly #blocks = new Map<string, Block>();
  readonly #freeNumbers: number[] = [];
  /** Blocks that are here, the least valuable byte first. Those that GPUs have as well come before all others. */
  readonly #order: ValueOrder<Block>;
  /** By function that is pinned on GPUs: on how many. */
  readonly #pinnedOn = new Map<ServedFunction, number>();
  /** Functions that calls wait for, */
  readonly #wanted: WantedReads;
  /** and those that are read though no call waits for them, if there is room. */
  readonly #asked: WantedReads;
  /** Functions of which other layers are on GPUs since the latest event. */
  readonly #moved = new Set<ServedFunction>();
  /** Functions whose read was given up although runs or loads of them have begun, which a GPU waits in. */
  readonly #urgent = new Set<Copy>();
  /** Functions that the place holds and that are not here, with the instant since when. */
  readonly #held = new Map<Copy, number>();
  /** Functions with blocks of a former sheet. */
  readonly #outdated = new Set<Copy>();
  /** Functions that can be loaded again, since nothing is left of their former sheets. */
  readonly #renewed: ServedFunction[] = [];
  /** Functions being read, the first first. */
  readonly #reading: Copy[] = [];
  /** Reads since the last one for the call that waits longest. */
  #readsSinceOverdue = 0;
  #overdueWakeMs = Infinity;
  usedBytes = 0;

  constructor({ capacityBytes, diskGBps }: HostTier, shared: Shared) {
    const { policy, orders, slots, popularity } = shared;
    this.#capacityBytes = capacityBytes;
    this.#policy = policy;
    this.#orders = orders;
    this.#slots = slots;
    this.#uses = new HostUses(shared);
    this.#shared = shared;
    this.#values = new HostValues(diskGBps, shared);
    this.#wanted = new WantedReads(this.#values);
    this.#asked = new WantedReads(this.#values);
    this.#order = new ValueOrder((block) => this.#values.valueOf(block));
    popularity.onScale((factor) => this.#order.scale(factor));
  }

  // What it tells

  /** Whether GPUs can be loaded from it: all is here, or will be when a load that begins now needs it. */
  has(fn: ServedFunction): boolean {
    const copy = this.#copies.get(fn);
    if (copy === undefined) return true;
    if (copy.former.length > 0) return false;
    const { missing, read, needsAll } = copy;
    return missing === 0 || (read?.isLoadable === true && missing === read.blocks.length && !needsAll);
  }

  /** Whether nothing of it has to be read. */
  isHere(fn: ServedFunction): boolean {
    return (this.#copies.get(fn)?.missing ?? 0) === 0;
  }

  /** What becomes of a function that something waits for. Each claim is followed by one of these, but for a defect. */
  waitsFor(fn: ServedFunction): HostWait {
    const copy = this.#copies.get(fn);
    if (copy === undefined || !this.#uses.isClaimed(copy)) return 'nothing';
    if (copy.former.length > 0) return 'what it had';
    if (copy.missing === 0) return 'nothing';
    if (copy.blocks.some(({ state }) => state === 'read')) return 'its read';
    if (this.#wanted.has(copy)) return this.canHold(fn) ? 'its turn' : 'another place';
    return 'nobody';
  }

  /** When the read of a function is expected to end; 0 where none is under way. */
  readEndMs(fn: ServedFunction): number {
    return this.#copies.get(fn)?.read?.endMs ?? 0;
  }

  /** Whether there can ever be room for it, beside what pinned functions execute from. */
  canHold(fn: ServedFunction): boolean {
    let roomBytes = this.#capacityBytes;
    for (const pinned of this.#pinnedOn.keys())
      if (pinned !== fn) roomBytes -= this.#copies.get(pinned)?.executedBytes ?? 0;
    return (this.#copies.get(fn)?.bytes ?? 0) <= roomBytes;
  }

  /** How long until a load of a function that is wanted now could begin; 0 when it can. */
  missingMs(fn: ServedFunction, nowMs: number): number {
    if (this.has(fn)) return 0;
    const copy = this.#copies.get(fn)!;
    const { read } = copy;
    if (read !== undefined) return Math.max(0, read.endMs - read.overlapMs - nowMs);
    const readMs = this.#values.readMs(copy);
    const beginMs = Math.max(nowMs, this.#reading.at(-1)?.read?.endMs ?? 0) + this.#wanted.aheadMs(copy, nowMs);
    return beginMs + readMs - Math.min(readMs, fn.least.linkMs) - nowMs;
  }

  /** What it costs the next start of the function if it is no longer whole on a GPU: a read, if it has no copy here. */
  restoreMs(fn: ServedFunction): number {
    const copy = this.#copies.get(fn);
    return copy === undefined || copy.missing === 0 ? 0 : this.#values.missMs(copy);
  }

  // What it is told

  /** A GPU pins or unpins a function. Returns whether that leaves less room for others. */
  pin(fn: ServedFunction, by: 1 | -1): boolean {
    const before = this.#pinnedOn.get(fn) ?? 0;
    if (before + by === 0) this.#pinnedOn.delete(fn);
    else this.#pinnedOn.set(fn, before + by);
    return before === 0 && (this.#copies.get(fn)?.executedBytes ?? 0) > 0;
  }

  /** The function is new, or has a new sheet. */
  changed(fn: ServedFunction, nowMs: number): void {
    const { hostBlocks = noBlocks } = fn.sheet;
    let copy = this.#copies.get(fn);
    if (copy === undefined) {
      if (hostBlocks.length === 0) return;
      copy = new Copy(fn);
      this.#copies.set(fn, copy);
    }
    if (copy.given === hostBlocks) return;
    copy.given = hostBlocks;
    // A read is of the blocks that it was ordered for.
    copy.isOutdated = copy.read !== undefined && this.#isDividedAnew(copy) && !isDividedSo(copy);
    if (copy.isOutdated) this.#canRun(copy);
    else if (!isDividedSo(copy)) this.#divide(copy, nowMs);
  }

  /** Takes over the blocks that its sheet names now. */
  #divide(copy: Copy, nowMs: number): void {
    const { fn, given, blocks } = copy;
    copy.isOutdated = false;
    const isHere = this.#isDividedAnew(copy) && copy.missing === 0;
    const isSame = isHere || (this.#isDividedAnew(copy) && !this.#uses.isBusy(fn));
    if (isSame) {
      // Layers of which only some are here are read again with the others.
      if (!isHere && blocks.some(({ isExecuted }) => isExecuted)) this.#uses.dropFromGpus(fn);
      if (!isHere) for (const block of blocks) if (block.state === 'here') this.#drop(block, 'unload', copy);
      for (const block of blocks) this.#close(block);
    }
    const before = isSame ? [] : [...copy.former, ...blocks];
    copy.blocks = given.map((block, at) => this.#open(idOf(fn, block, at), block));
    for (const block of copy.blocks) block.users.add(copy);
    copy.former = before.filter((block) => !copy.blocks.includes(block));
    copy.missing = copy.blocks.filter(({ state }) => state !== 'here').length;
    copy.bytes = sumOf(copy.blocks);
    const executedBytes = sumOf(copy.blocks.filter(({ isExecuted }) => isExecuted));
    // What is pinned leaves others more or less room.
    if (copy.executedBytes !== executedBytes && this.#pinnedOn.has(fn))
      this.#shared.pinnedOn.push(...this.#shared.gpus);
    copy.executedBytes = executedBytes;
    if (copy.former.length > 0) this.#outdated.add(copy);
    if (isHere) this.#arrive(copy.blocks);
    // The place had forgotten it, and knows it again.
    else if (blocks.length === 0 && this.#values.calls(copy) > 0) this.#asked.add(copy, nowMs);
    this.#canRun(copy);
    this.#moved.add(fn);
  }

  /** It is here from the start, if there is room. */
  fill(fn: ServedFunction): void {
    const blocks = this.#copies.get(fn)?.blocks.filter(({ state }) => state === 'on disk') ?? [];
    const bytes = sumOf(blocks);
    if (this.usedBytes + bytes > this.#capacityBytes) return;
    this.usedBytes += bytes;
    this.#arrive(blocks);
  }

  /** Something has come that may need it: it is tried again, whatever became of the last read. */
  want(fn: ServedFunction, nowMs: number): void {
    const copy = this.#copies.get(fn);
    if (copy === undefined) return;
    copy.pausedUntilMs = 0;
    this.#want(copy, nowMs);
  }

  #want(copy: Copy, nowMs: number): void {
    if (copy.missing > 0 && copy.read === undefined) this.#wanted.add(copy, nowMs);
    this.#reorder(copy);
  }

  /** The place uses it without an order, or no longer. */
  hold(fn: ServedFunction, by: 1 | -1, nowMs: number): void {
    const copy = this.#copies.get(fn);
    if (copy === undefined) return;
    copy.holds = Math.max(0, copy.holds + by);
    if (copy.holds === 0) {
      this.#held.delete(copy);
      this.#moved.add(fn);
      return;
    }
    this.want(fn, nowMs);
    if (copy.missing === 0 || this.#held.has(copy)) return;
    this.#held.set(copy, nowMs);
    this.#orders.wake(nowMs + heldMs);
  }

  /** Other layers of the function are on GPUs, or are on their way. */
  moved(fn: ServedFunction): void {
    this.#moved.add(fn);
  }

  /** Something may have become free. */
  retry(nowMs: number): void {
    for (const copy of this.#outdated) this.#renew(copy, nowMs);
    if (this.usedBytes > this.#capacityBytes) this.#shrink();
    do this.#settleMoved(nowMs);
    while (this.#reading.length < readAhead && this.#readNext(nowMs));
  }

  /** The function has been read. Returns the functions that can be loaded from now on. */
  arrived(fn: ServedFunction, nowMs: number, observed: StageObservation | undefined): readonly ServedFunction[] {
    const copy = this.#copies.get(fn);
    const read = copy?.read;
    if (copy === undefined || read === undefined) return [];
    if (observed !== undefined) this.#values.observe(copy, read.bytes, observed);
    const found = this.#arrive(read.blocks);
    this.#endRead(copy, nowMs);
    return found;
  }

  /** The place has no room for a read in one piece: one block more goes, and it is tried again. */
  refused(fn: ServedFunction, nowMs: number): void {
    const copy = this.#giveUp(fn, nowMs);
    if (copy === undefined) return;
    this.#wanted.add(copy, nowMs);
    const roomBytes = this.#capacityBytes - this.usedBytes;
    const victims = this.#victims(roomBytes + 1, Infinity) ?? this.#victims(roomBytes + 1, 'all') ?? [];
    for (const block of victims) this.#drop(block, 'capacity');
    // Where nothing can go, the place would refuse again at once.
    if (victims.length === 0) this.#pause(copy, nowMs);
  }

  /** It could not be read. That is tried again with the next call, or after a pause where something still waits. */
  failed(fn: ServedFunction, nowMs: number): void {
    const copy = this.#giveUp(fn, nowMs);
    if (copy !== undefined) this.#pause(copy, nowMs);
  }

  #pause(copy: Copy, nowMs: number): void {
    copy.pausedUntilMs = nowMs + heldMs;
    this.#orders.wake(copy.pausedUntilMs);
  }

  /** Its read has brought nothing. Undefined: it was not being read. */
  #giveUp(fn: ServedFunction, nowMs: number): Copy | undefined {
    const copy = this.#copies.get(fn);
    const read = copy?.read;
    if (copy === undefined || read === undefined) return undefined;
    for (const block of read.blocks) block.state = 'on disk';
    for (const { users } of read.blocks) for (const user of users) this.#canRun(user);
    this.usedBytes -= read.bytes;
    this.#endRead(copy, nowMs);
    // A load that could have followed the read has nothing to follow now.
    this.#restage(copy.fn);
    if (this.#uses.isBusy(copy.fn)) this.#urgent.add(copy);
    return copy;
  }

  /** Reads that a load can follow from now on. */
  loadable(nowMs: number): readonly ServedFunction[] {
    if (this.#overdueWakeMs <= nowMs) this.#overdueWakeMs = Infinity;
    const found = this.#renewed.splice(0);
    for (const { fn, read } of this.#reading) {
      if (read!.isLoadable || read!.endMs - read!.overlapMs > nowMs) continue;
      read!.isLoadable = true;
      found.push(fn);
    }
    return found;
  }

  /** There is more or less room than before. */
  resize(capacityBytes: number): void {
    this.#capacityBytes = capacityBytes;
  }

  /** All that was here is gone, as is what GPUs had. It is read again, what is worth most first. */
  lost(nowMs: number): void {
    for (const block of this.#blocks.values()) {
      this.#order.remove(block);
      block.state = 'on disk';
    }
    this.usedBytes = 0;
    this.#reading.splice(0);
    for (const copy of this.#copies.values()) {
      copy.missing = copy.blocks.length;
      this.#endRead(copy, nowMs);
      this.#canRun(copy);
      if (this.#values.calls(copy) > 0 && copy.missing > 0) this.#asked.add(copy, nowMs);
      // Calls are placed anew; of what is held, the read under way may have been the only one ordered.
      if (copy.holds > 0) this.#want(copy, nowMs);
    }
  }

  /** The function was removed. Memory that is still in use goes when it no longer is. */
  forget(fn: ServedFunction): void {
    const copy = this.#copies.get(fn);
    if (copy === undefined) return;
    this.#wanted.delete(copy);
    this.#asked.delete(copy);
    copy.former = [...copy.former, ...copy.blocks];
    copy.blocks = [];
    copy.given = noBlocks;
    copy.missing = 0;
    this.#outdated.add(copy);
    this.#canRun(copy);
  }

  // Blocks

  #open(id: string, given: HostBlock): Block {
    let block = this.#blocks.get(id);
    if (block !== undefined) return block;
    block = new Block(this.#freeNumbers.pop() ?? this.#blocks.size, id, given);
    this.#blocks.set(id, block);
    return block;
  }

  /**
   * Whether the same content is only part of other blocks now: a function whose blocks no other one had has one content. Of
   * that, others may have some from now on.
   */
  #isDividedAnew({ given, blocks, former, bytes }: Copy): boolean {
    if (blocks.length === 0 || former.length > 0) return false;
    if (!blocks.every(({ isOwn }) => isOwn)) return false;
    if (given.some(({ id }) => id !== undefined && this.#blocks.has(id))) return false;
    return given.reduce((sum, each) => sum + each.bytes, 0) === bytes;
  }

  #close(block: Block): void {
    this.#order.remove(block);
    this.#blocks.delete(block.id);
    this.#freeNumbers.push(block.number);
  }

  /** Blocks have been read. Returns the functions of which nothing is missing any more. */
  #arrive(blocks: readonly Block[]): ServedFunction[] {
    const found: ServedFunction[] = [];
    for (const block of blocks) {
      block.state = 'here';
      this.#order.add(block);
      for (const user of block.users) {
        if (!user.blocks.includes(block)) continue;
        user.missing--;
        this.#canRun(user);
        if (user.missing > 0) continue;
        this.#wanted.delete(user);
        this.#asked.delete(user);
        this.#held.delete(user);
        found.push(user.fn);
      }
    }
    for (const fn of found) this.#reprice(fn);
    return found;
  }

  #drop(block: Block, cause: 'capacity' | 'unload', owner: Copy = block.users.values().next().value!): void {
    this.#order.remove(block);
    block.state = 'on disk';
    this.usedBytes -= block.bytes;
    for (const user of block.users) if (user.blocks.includes(block)) user.missing++;
    const { bytes, layers } = block;
    const shared = block.isOwn ? {} : { isShared: true };
    this.#orders.add({ kind: 'evict-host', functionIndex: owner.fn.number, bytes, layers, ...shared, cause });
    for (const user of block.users) {
      this.#canRun(user);
      this.#reprice(user.fn);
      this.#moved.add(user.fn);
      this.#restage(user.fn);
    }
  }

  #restage(fn: ServedFunction): void {
    for (const slot of this.#slots.homes(fn)) slot.gpu.restage(slot);
  }

  /** Brings up to date whether a function can run, as far as that depends on what it executes from. */
  #canRun(copy: Copy): void {
    const { fn, blocks, former, missing } = copy;
    // One with layers on a GPU begins while the rest is read: the link and the disk work beside each other.
    const lacksExecuted = copy.needsAll
      ? missing > 0 || former.length > 0
      : blocks.some(({ isExecuted, state }) => isExecuted && state === 'on disk');
    if (fn.lacksExecuted === lacksExecuted) return;
    fn.lacksExecuted = lacksExecuted;
    this.#restage(fn);
    this.#moved.add(fn);
  }

  /** What its layers on GPUs are worth has changed. */
  #reprice(fn: ServedFunction): void {
    for (let slot = this.#slots.first(fn); slot !== undefined; slot = slot.next) slot.gpu.memory.reprice(slot);
  }

  #reorder({ blocks }: Copy): void {
    for (const block of blocks) if (this.#order.has(block)) this.#order.relayer(block);
  }

  #settleMoved(nowMs: number): void {
    for (const fn of this.#moved) {
      this.#moved.delete(fn);
      const copy = this.#copies.get(fn);
      if (copy === undefined) continue;
      if (this.#uses.isClaimed(copy)) this.#want(copy, nowMs);
      else this.#reorder(copy);
    }
  }

  /** Drops what is of a former sheet, once nothing uses it. */
  #renew(copy: Copy, nowMs: number): void {
    const { fn, former } = copy;
    if (copy.read !== undefined || this.#uses.isBusy(fn)) return;
    // Layers that execute from a block are of no use without it.
    if (former.some(({ isExecuted }) => isExecuted)) this.#uses.dropFromGpus(fn);
    copy.former = [];
    this.#outdated.delete(copy);
    for (const block of former) {
      block.users.delete(copy);
      if (block.users.size > 0) continue;
      if (block.state === 'here') this.#drop(block, 'unload', copy);
      this.#close(block);
    }
    if (fn.isRemoved) this.#copies.delete(fn);
    this.#canRun(copy);
    this.#moved.add(fn);
    if (!this.has(fn)) return;
    this.#renewed.push(fn);
    this.#orders.wake(nowMs);
  }

  // Reads

  /** Orders the next read. Returns whether there was one to order. */
  #readNext(nowMs: number): boolean {
    for (const copy of this.#urgent) {
      if (copy.missing === 0 || !this.#uses.isBusy(copy.fn)) this.#urgent.delete(copy);
      else if (this.#readAnyway(copy, nowMs)) return true;
    }
    if (this.#wanted.size > 0) {
      // 1. For the next in line, where turns are strictly in order of arrival. None goes before it.
      if (this.#policy.order === 'fifo') {
        const next = this.#readForNext(nowMs);
        if (next !== undefined) return next || (this.#reading.length === 0 && this.#readHeld(nowMs));
      }
      // 2. For the call that waits longest, beyond the policy's bound, one read in so many. Others wait for a large one.
      if (this.#readsSinceOverdue >= overdueShare - 1) {
        const isOrdered = this.#readOverdue(nowMs, 1);
        if (isOrdered || (isOrdered === false && this.#reading.length > 0)) return isOrdered;
      }
      // 3. The most valuable, if what goes for it is worth less.
      let failedBytes = Infinity;
      const isOrdered = this.#wanted.find(nowMs, (copy, value) => {
        const bytes = copy.onDiskBytes;
        // No more valuable, and no smaller, than one that found no room.
        if (!this.#isWanted(copy) || bytes >= failedBytes) return false;
        failedBytes = bytes;
        return this.#read(copy, value, nowMs);
      });
      if (isOrdered) return true;
      // 4. What is worth less than all that is here, for the call that waits longest, in a disk that has nothing to do.
      if (this.#reading.length > 0) return false;
      if (this.#readOverdue(nowMs, Infinity) === true || this.#readHeld(nowMs)) return true;
    }
    // 5. What no call waits for, without evicting anything.
    return this.#reading.length === 0 && this.#asked.find(nowMs, (copy) => this.#read(copy, -Infinity, nowMs));
  }

  /** Whether something still waits for it. A call may have gone, or may need other weights now. */
  #isWanted(copy: Copy): boolean {
    const { fn, missing } = copy;
    // What there is no room for for ever goes elsewhere.
    if (!fn.isRemoved && missing > 0 && this.#uses.isClaimed(copy)) return this.canHold(fn);
    this.#wanted.delete(copy);
    return false;
  }

  /** Undefined: none of those that are next in line is to be read. */
  #readForNext(nowMs: number): boolean | undefined {
    let isOrdered: boolean | undefined;
    for (const { line } of this.#shared.gpus) {
      const next = line.next();
      const copy = next && this.#copies.get(next.fn);
      if (copy === undefined || copy.read !== undefined || !this.#isWanted(copy)) continue;
      isOrdered = this.#readAnyway(copy, nowMs);
      if (isOrdered) break;
    }
    return isOrdered;
  }

  /**
   * For the call that waits longest beyond the policy's bound and finds room; undefined: none waits so long.
   *
   * @param looks how many of them are tried
   */
  #readOverdue(nowMs: number, looks: number): boolean | undefined {
    let looked = 0;
    for (const [copy, sinceMs] of this.#wanted.oldestFirst) {
      if (!this.#isWanted(copy)) continue;
      const overdueMs = sinceMs + this.#policy.waitBoundMs;
      if (overdueMs > nowMs) {
        if (overdueMs < this.#overdueWakeMs) this.#orders.wake((this.#overdueWakeMs = overdueMs));
        break;
      }
      if (looked++ === looks) break;
      if (!(looked === 1 ? this.#readAnyway(copy, nowMs) : this.#read(copy, Infinity, nowMs))) continue;
      this.#readsSinceOverdue = 0;
      return true;
    }
    return looked > 0 ? false : undefined;
  }

  /** For what the place has held in vain for long: it could be worth nothing for ever. */
  #readHeld(nowMs: number): boolean {
    for (const [copy, sinceMs] of this.#held) {
      if (sinceMs + heldMs > nowMs) break;
      if (this.#isWanted(copy) && this.#readAnyway(copy, nowMs)) return true;
    }
    return false;
  }

  /** Whatever goes for it; where the disk has nothing else to do, also what others wait with that lack something too. */
  #readAnyway(copy: Copy, nowMs: number): boolean {
    return this.#read(copy, Infinity, nowMs) || (this.#reading.length === 0 && this.#read(copy, 'all', nowMs));
  }

  /** Orders a read if there is room for it, at the cost of what is worth no more; `all`: of all that no machine uses. */
  #read(copy: Copy, worth: number | 'all', nowMs: number): boolean {
    const blocks = copy.blocks.filter(({ state }) => state === 'on disk');
    // All that is missing is being read for another function, or is to go first.
    if (blocks.length === 0 || copy.read !== undefined || copy.former.length > 0) return false;
    if (nowMs < copy.pausedUntilMs) return false;
    const bytes = sumOf(blocks);
    const victims = this.#victims(bytes, worth, copy);
    if (victims === undefined) return false;
    for (const block of victims) this.#drop(block, 'capacity');
    const { fn } = copy;
    const ms = this.#values.msOf(copy, bytes);
    const endMs = Math.max(nowMs, this.#reading.at(-1)?.read?.endMs ?? 0) + ms;
    copy.read = { blocks, bytes, ms, overlapMs: Math.min(ms, fn.least.linkMs), endMs, isLoadable: false };
    this.usedBytes += bytes;
    for (const block of blocks) block.state = 'read';
    for (const { users } of blocks) for (const user of users) this.#canRun(user);
    this.#reading.push(copy);
    this.#wanted.delete(copy);
    this.#asked.delete(copy);
    this.#readsSinceOverdue++;
    const layers = blocks.flatMap((block) => block.layers);
    this.#orders.add({ kind: 'stage', functionIndex: fn.number, bytes, layers });
    this.#orders.wake(endMs - copy.read.overlapMs);
    return true;
  }

  /** The read is over, one way or the other. Those behind it are expected to end as if they began now. */
  #endRead(copy: Copy, nowMs: number): void {
    if (copy.read === undefined) return;
    copy.read = undefined;
    if (copy.isOutdated) this.#divide(copy, nowMs);
    // Something of it may have gone.
    this.#canRun(copy);
    this.#moved.add(copy.fn);
    takeOut(this.#reading, copy);
    let endMs = nowMs;
    for (const { read } of this.#reading) {
      endMs += read!.ms;
      const isSooner = endMs < read!.endMs;
      read!.endMs = endMs;
      if (isSooner && !read!.isLoadable) this.#orders.wake(Math.max(nowMs, endMs - read!.overlapMs));
    }
  }

  // Room

  /**
   * What has to go for so many bytes, all of it worth no more than they are; undefined where that is not enough.
   *
   * @param worth 'all': whatever it is worth, also what something waits with @param asking what is to have the room
   */
  #victims(neededBytes: number, worth: number | 'all', asking?: Copy): Block[] | undefined {
    const isForced = worth === 'all';
    let roomBytes = this.#capacityBytes - this.usedBytes;
    const victims: Block[] = [];
    const inUse: Block[] = [];
    let block: Block | undefined;
    while (roomBytes < neededBytes && (block = this.#order.first()) !== undefined) {
      const key = this.#order.keyOf(block);
      this.#order.remove(block);
      const value = this.#values.valueOf(block);
      // It has become more valuable since it was put in order.
      if (value > key) this.#order.add(block);
      else if (worth !== 'all' && value > worth) {
        this.#order.add(block);
        break;
      } else if ((asking && block.users.has(asking)) || this.#uses.isInUse(block, isForced)) inUse.push(block);
      else {
        victims.push(block);
        roomBytes += block.bytes;
      }
    }
    // Last, what functions execute from that are idle on GPUs: they go from there as well.
    const emptied: Block[] = [];
    for (const each of inUse) {
      if (roomBytes >= neededBytes) break;
      if (!each.isExecuted || (asking && each.users.has(asking)) || !this.#uses.canLeaveGpus(each)) continue;
      emptied.push(each);
      roomBytes += each.bytes;
    }
    for (const each of inUse) this.#order.add(each);
    if (roomBytes < neededBytes) {
      for (const each of victims) this.#order.add(each);
      return undefined;
    }
    for (const { users } of emptied) for (const { fn } of users) this.#uses.dropFromGpus(fn);
    return [...victims, ...emptied];
  }

  /** There is less room than is used: what can go does, however valuable. */
  #shrink(): void {
    while (this.usedBytes > this.#capacityBytes) {
      // One after the other: what is left may all be in use.
      const [block] = this.#victims(this.#capacityBytes - this.usedBytes + 1, Infinity) ?? [];
      if (block === undefined) return;
      this.#drop(block, 'capacity');
    }
  }
}

const idOf = ({ number }: ServedFunction, { id, bytes, isExecuted, layers = [] }: HostBlock, at: number): string =>
  id ?? `${number} ${at} ${bytes} ${isExecuted === true} ${layers.join()}`;

/** Whether its blocks are those that its sheet names. */
const isDividedSo = ({ fn, given, blocks }: Copy): boolean =>
  blocks.length === given.length && blocks.every(({ id }, at) => id === idOf(fn, given[at]!, at));
