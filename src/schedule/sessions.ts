import type { ServedFunction } from './function.ts';
import { ValueOrder } from './heap.ts';
import type { Popularity } from './learnt.ts';
import type { Orders } from './orders.ts';
import type { RoomPurpose, SessionCause } from './types.ts';

/** A session of less than this share of the room that is missing does not help, if all idle ones do not. */
const smallShare = 1 / 64;
/** So many of those are passed over in the search for larger ones. */
const smallPassedMax = 64;

/** What one function has on the CPU: its sessions, as one. */
export interface Session {
  readonly bytes: number;
  /** How many it has beyond the first. */
  readonly spares: number;
  /** Runs in it. */
  runs: number;
  /** How long the session takes to make, and when it is expected to be ready. */
  loadMs: number;
  readyMs: number;
  /**
   * The function was removed during a run. The session goes with its last run; a new function of that number makes
   * another.
   */
  isLeft: boolean;
}

/**
 * Sessions on the CPU and the memory that they share: the one place that decides which of them goes. A session stays
 * until another needs its room, or nothing has used it for as long as the place allows. Spare ones go first, which leave their function another; then the cheapest to make
 * again: invocation frequency times the time to make it, over its bytes; what is pinned goes last.
 */
export class Sessions {
  readonly #of = new Map<ServedFunction, Session>();
  /** Functions without a run in their session, and functions that have spare ones. */
  readonly #idle: ValueOrder<ServedFunction>;
  readonly #spare: ValueOrder<ServedFunction>;
  /** Functions in whose sessions no run has ended yet. */
  readonly #making = new Set<ServedFunction>();
  /** Bytes of sessions made without an order that found no room: sessions that become idle next are closed for them. */
  readonly #wanted = new Map<ServedFunction, number>();
  #roomBytes: number;
  #usedBytes = 0;
  /** Bytes of idle sessions, without the spare ones. */
  #idleBytes = 0;
  #spareBytes = 0;
  #wantedBytes = 0;
  readonly #popularity: Popularity;
  readonly #orders: Orders;

  constructor(roomBytes: number, popularity: Popularity, orders: Orders) {
    this.#roomBytes = roomBytes;
    this.#popularity = popularity;
    this.#orders = orders;
    const valueOf = (fn: ServedFunction): number => {
      const { loadMs, bytes } = this.#of.get(fn)!;
      return this.valueOf(fn, loadMs, bytes);
    };
    this.#idle = new ValueOrder(valueOf);
    this.#spare = new ValueOrder(valueOf);
    popularity.onScale((factor) => {
      this.#idle.scale(factor);
      this.#spare.scale(factor);
    });
  }

  of(fn: ServedFunction): Session | undefined {
    return this.#of.get(fn);
  }

  /** How much memory all sessions may take from now on. */
  setRoom(bytes: number): void {
    this.#roomBytes = bytes;
    this.#makeRoom(0);
  }

  /** Whether a session of so many bytes could be made now, by closing others; where nothing runs it always can. */
  hasRoomFor(bytes: number): boolean {
    const busyBytes = this.#busyBytes;
    return busyBytes < 1 || this.#roomBytes - busyBytes - this.#wantedBytes >= bytes;
  }

  /** Bytes of sessions in which something runs, or that are being made. */
  get #busyBytes(): number {
    return this.#usedBytes - this.#idleBytes - this.#spareBytes;
  }

  /** Whether there is room without closing a session that is worth at least as much. */
  isWorth(fn: ServedFunction, loadMs: number, bytes: number): boolean {
    if (this.#usedBytes + bytes <= this.#roomBytes) return true;
    const victim = this.#idle.first();
    return victim !== undefined && this.#idle.keyOf(victim) < this.valueOf(fn, loadMs, bytes);
  }

  valueOf({ number, sheet }: ServedFunction, loadMs: number, bytes: number): number {
    return sheet.cpu?.isPinned === true ? Infinity : (this.#popularity.count(number) * loadMs) / bytes;
  }

  /** A run makes it. There is room for it: {@link hasRoomFor}. */
  open(fn: ServedFunction, session: Omit<Session, 'spares' | 'isLeft'>): void {
    this.#makeRoom(session.bytes);
    this.#of.set(fn, { ...session, spares: 0, isLeft: false });
    this.#usedBytes += session.bytes;
    if (session.readyMs > 0) this.#making.add(fn);
  }

  /** A run begins in it. */
  begin(fn: ServedFunction, loadMs: number): void {
    const session = this.#of.get(fn)!;
    this.#hold(fn);
    session.runs++;
    session.loadMs = loadMs;
  }

  /** A run in it has ended. */
  end(fn: ServedFunction): void {
    const session = this.#of.get(fn);
    if (session === undefined) return;
    session.runs--;
    session.readyMs = 0;
    this.#making.delete(fn);
    if (session.isLeft) {
      if (session.runs === 0) this.#evict(fn, 'unload');
      return;
    }
    this.#release(fn);
    // There was too little for what runs, and nothing could go.
    if (this.#usedBytes + this.#wantedBytes > this.#roomBytes) this.#makeRoom(0);
  }

  /**
   * What its sessions really take; 0: they are gone.
   *
   * @param loadMs of one, and `runs` that go on, for a function that had none
   */
  set(fn: ServedFunction, bytes: number, spares: number, loadMs: number, runs: number): void {
    const before = this.#of.get(fn);
    this.#hold(fn);
    this.#spare.remove(fn);
    this.#usedBytes += bytes - (before?.bytes ?? 0);
    this.#spareBytes += spareBytesOf({ bytes, spares }) - (before === undefined ? 0 : spareBytesOf(before));
    this.#want(fn, 0);
    if (bytes === 0) this.#delete(fn);
    else {
      const earlier = before ?? { loadMs, runs, readyMs: 0, isLeft: false };
      this.#of.set(fn, { ...earlier, bytes, spares });
      if (spares > 0) this.#spare.add(fn);
    }
    this.#release(fn);
    this.#makeRoom(0);
  }

  /** See `room-wanted` of the events. */
  want(fn: ServedFunction, bytes: number, purpose: RoomPurpose): void {
    if (purpose !== 'first') {
      const isShort = (): boolean => this.#usedBytes + this.#wantedBytes + bytes > this.#roomBytes;
      // For a spare one no function gives up its own.
      const mayGo = (other: ServedFunction): boolean => purpose === 'list' || other !== fn;
      while (isShort() && this.#giveSpare('capacity', this.#spare.firstThat(mayGo)));
      if (purpose === 'list') while (isShort() && this.#giveFor(fn));
      return;
    }
    // What the scheduler itself ordered is in its books.
    const own = this.#of.get(fn);
    this.#want(fn, own === undefined ? bytes : 0);
    // Where nothing runs but in sessions that are still to be made, nothing else will ever give them room.
    let makingBytes = 0;
    for (const making of this.#making) makingBytes += this.#of.get(making)!.bytes;
    this.#makeRoom(0, this.#busyBytes <= makingBytes);
  }

  /** See `session-idle` of the events. */
  isIdle(fn: ServedFunction, isSpare: boolean): void {
    const session = this.#of.get(fn);
    // One that holds a handler alone may be in no book here.
    if (session === undefined) this.#order(fn, 0, 'idle', isSpare);
    else if (isSpare) this.#giveSpare('idle', this.#spare.has(fn) ? fn : undefined);
    else if (session.runs === 0) this.#evict(fn, 'idle');
  }

  /** The function was removed. */
  leave(fn: ServedFunction): void {
    this.#want(fn, 0);
    const session = this.#of.get(fn);
    if (session === undefined) return;
    if (session.runs > 0) session.isLeft = true;
    else this.#evict(fn, 'unload');
  }

  #delete(fn: ServedFunction): void {
    this.#of.delete(fn);
    this.#making.delete(fn);
  }

  #want(fn: ServedFunction, bytes: number): void {
    this.#wantedBytes += bytes - (this.#wanted.get(fn) ?? 0);
    if (bytes === 0) this.#wanted.delete(fn);
    else this.#wanted.set(fn, bytes);
  }

  /** The session may be closed from now on, if nothing runs in it. */
  #release(fn: ServedFunction): void {
    const session = this.#of.get(fn);
    if (session === undefined || session.runs > 0 || session.bytes === 0) return;
    this.#idle.add(fn);
    this.#idleBytes += session.bytes - spareBytesOf(session);
  }

  #hold(fn: ServedFunction): void {
    if (!this.#idle.has(fn)) return;
    const session = this.#of.get(fn)!;
    this.#idle.remove(fn);
    this.#idleBytes -= session.bytes - spareBytesOf(session);
  }

  #makeRoom(neededBytes: number, isLast = false): void {
    const missingBytes = (): number => this.#usedBytes + this.#wantedBytes + neededBytes - this.#roomBytes;
    while (missingBytes() > 0 && this.#giveSpare('capacity', this.#spare.first()));
    for (const victim of this.#victims(missingBytes(), isLast)) this.#evict(victim, 'capacity');
  }

  /**
   * The sessions worth least that together make the room, without those that it does not take. Where all idle sessions
   * are too little, the rest comes from a session in which something runs, and a small one would go for nothing. `isLast`:
   * nothing runs.
   */
  #victims(missingBytes: number, isLast: boolean): ServedFunction[] {
    const taken: { readonly fn: ServedFunction; readonly key: number }[] = [];
    const isEnough = this.#idleBytes >= missingBytes;
    let bytes = 0;
    for (let passed = 0; bytes < missingBytes && passed < smallPassedMax;) {
      const fn = this.#idle.first();
      if (fn === undefined) break;
      taken.push({ fn, key: this.#idle.keyOf(fn) });
      this.#idle.remove(fn);
      bytes += this.#of.get(fn)!.bytes;
      if (!isEnough && !isLast && this.#isSmall(fn, missingBytes)) passed++;
    }
    const victims: ServedFunction[] = [];
    for (const { fn, key } of taken.reverse()) {
      // What is not enough without it is not enough with it either.
      const withoutBytes = bytes - this.#of.get(fn)!.bytes;
      const stays = isEnough ? withoutBytes >= missingBytes : !isLast && this.#isSmall(fn, missingBytes);
      this.#idle.restore(fn, key);
      if (!stays) victims.push(fn);
      else bytes = withoutBytes;
    }
    return victims.reverse();
  }

  readonly #isSmall = (fn: ServedFunction, missingBytes: number): boolean =>
    this.#of.get(fn)!.bytes < missingBytes * smallShare;

  /** Closes one spare session. */
  #giveSpare(cause: SessionCause, fn: ServedFunction | undefined): boolean {
    if (fn === undefined) return false;
    const session = this.#of.get(fn)!;
    const bytes = Math.floor(session.bytes / (session.spares + 1));
    const left = { ...session, bytes: session.bytes - bytes, spares: session.spares - 1 };
    this.#hold(fn);
    this.#spare.remove(fn);
    this.#usedBytes -= bytes;
    this.#spareBytes += spareBytesOf(left) - spareBytesOf(session);
    this.#of.set(fn, left);
    if (left.spares > 0) this.#spare.add(fn);
    this.#release(fn);
    this.#order(fn, bytes, cause, true);
    return true;
  }

  /** Closes the session that is worth least, if that of this function is worth more. */
  #giveFor(fn: ServedFunction): boolean {
    const own = this.#of.get(fn);
    const victim = this.#idle.first();
    if (own === undefined || victim === undefined || victim === fn) return false;
    if (this.#idle.keyOf(victim) >= this.valueOf(fn, own.loadMs, own.bytes)) return false;
    this.#evict(victim, 'capacity');
    return true;
  }

  #evict(fn: ServedFunction, cause: SessionCause): void {
    const session = this.#of.get(fn)!;
    const { bytes } = session;
    this.#hold(fn);
    this.#spare.remove(fn);
    this.#delete(fn);
    this.#usedBytes -= bytes;
    this.#spareBytes -= spareBytesOf(session);
    // A session of 0 bytes is not counted: the place handles it alone.
    if (bytes > 0) this.#order(fn, bytes, cause);
  }

  #order(fn: ServedFunction, bytes: number, cause: SessionCause, isSpare = false): void {
    this.#orders.add({ kind: 'evict-cpu', functionIndex: fn.number, bytes, cause, ...(isSpare && { isSpare }) });
  }
}

const spareBytesOf = ({ bytes, spares }: Pick<Session, 'bytes' | 'spares'>): number =>
  Math.floor(bytes / (spares + 1)) * spares;
