/** A process or a thread, as seen by its parent. */
import type { FrameAccount } from '../tensor/index.ts';
import type { Channel, ChannelEvents } from './channel.ts';

export interface PeerEnd {
  /** Completes "it is gone: ": 'it exited with code 1', with its error message if it wrote one. */
  readonly reason: string;
  /** For a process that ended by itself, or by another's signal. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** The kernel ended it for lack of memory. */
  readonly isForMemory?: true;
  /** Its time limit ended it. */
  readonly isLate: boolean;
  /** The last of its standard error. */
  readonly words: string;
}

export interface PeerEvents<In extends object> {
  readonly message: ChannelEvents<In>['message'];
  /** Of a process: in which its messages count while they arrive; without one there is always room. */
  readonly account?: FrameAccount<In> | undefined;
  /** It is about to end by itself: messages sent before are still being read. */
  readonly closing?: (reason: string) => void;
  /** Called once, as the last event. */
  readonly ended: (end: PeerEnd) => void;
}

export interface Peer<Out extends object> extends Channel<Out> {
  /** -1 if it could not be started; for a thread, the process's own. */
  readonly pid: number;
  /** Ends it: a process at once, with SIGKILL, since one inside a native call notices nothing else. */
  end(reason: string, isLate?: boolean): void;
  /** Resolves when it is gone. */
  readonly exited: Promise<void>;
  /** It does not keep this process running until it is ended: its end is waited for. */
  unref(): void;
}
