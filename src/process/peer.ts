/** What a process or a thread looks like to the one that started it. */
import type { Channel, ChannelEvents } from './channel.ts';

export interface PeerEnd {
  /** What completes "it is gone: ": 'it exited with code 1', with the error that it wrote, where it wrote one. */
  readonly reason: string;
  /** Of a process that ended by itself, or by another's signal. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** Its time limit ended it. */
  readonly isLate: boolean;
  /** How what it wrote to its standard error ends. */
  readonly words: string;
}

export interface PeerEvents<In extends object> {
  readonly message: ChannelEvents<In>['message'];
  /** A sign that it ends by itself: what it sent before is still being read. */
  readonly closing?: (reason: string) => void;
  /** Called once; nothing is called after it. */
  readonly ended: (end: PeerEnd) => void;
}

export interface Peer<Out extends object> extends Channel<Out> {
  /** -1 for one that could not be started; of a thread, the process's own. */
  readonly pid: number;
  /** Ends it: a process at once, with SIGKILL, since one inside of a native call sees nothing else. */
  end(reason: string): void;
  /** Resolves when it is gone. */
  readonly exited: Promise<void>;
  /** Whether it keeps this process from ending by itself. It does at first. */
  hold(held: boolean): void;
}

export type StartPeer<Out extends object, In extends object> = (events: PeerEvents<In>) => Peer<Out>;
