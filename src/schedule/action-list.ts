import type { Action, Companion, Decision, EvictionCause, LoadOrder, Shell, Start } from './types.ts';

/** Writes down what is decided, for who carries it out later. */
export class ActionList implements Shell {
  actions: Action[] = [];

  run(
    invocation: number,
    functionIndex: number,
    gpu: number,
    start: Start,
    load: LoadOrder | null,
    predictedEndMs: number,
    decision: Decision,
    plan: string | undefined,
    companions?: readonly Companion[],
  ): void {
    const run = { kind: 'run', invocation, functionIndex, gpu, start, load, predictedEndMs, decision, plan } as const;
    this.actions.push(companions === undefined ? run : { ...run, companions });
  }

  load(invocation: number, functionIndex: number, gpu: number, load: LoadOrder, plan: string | undefined): void {
    this.actions.push({ kind: 'load', invocation, functionIndex, gpu, load, plan });
  }

  evict(functionIndex: number, gpu: number, prefix: number, bytes: number, cause: EvictionCause): void {
    this.actions.push({ kind: 'evict', functionIndex, gpu, prefix, bytes, cause });
  }

  wait(invocation: number, place: number, predictedEndMs: number, decision: Decision): void {
    this.actions.push({ kind: 'wait', invocation, place, predictedEndMs, decision });
  }

  wake(atMs: number): void {
    this.actions.push({ kind: 'wake', atMs });
  }

  act(action: Action): void {
    this.actions.push(action);
  }
}
