/** Plays a scenario to its end with the model and the invariants, which throw on any error. */
import { SchedulerModel, type ModelOptions } from '../../test/support/scheduler-model.ts';
import { Invariants } from './invariants.ts';
import { gpusOf, joinOf, sheetOf, type Operation, type Scenario } from './scenario.ts';

/** What happened in the scenarios, to show that something was tested. */
export interface Played {
  arrivals: number;
  events: number;
  evictions: number;
  shrinks: number;
  growths: number;
  shed: number;
  gpuLosses: number;
  hostLosses: number;
  /** Reads from disk. */
  reads: number;
  refusals: number;
  /** Invocations that shared another one's run. */
  companions: number;
}

export const nothingPlayed = (): Played => ({
  arrivals: 0,
  events: 0,
  evictions: 0,
  shrinks: 0,
  growths: 0,
  shed: 0,
  gpuLosses: 0,
  hostLosses: 0,
  reads: 0,
  refusals: 0,
  companions: 0,
});

/** Thrown for a scenario that breaks something, with the events so far. */
export class SeedFailure extends Error {
  override readonly name = 'SeedFailure';
  readonly events: readonly string[];

  constructor(message: string, events: readonly string[], options: ErrorOptions) {
    super(message, options);
    this.events = events;
  }
}

export function play(
  given: Scenario,
  into: Played,
  { makeScheduler, keepsLog = false }: Pick<ModelOptions, 'makeScheduler' | 'keepsLog'> = {},
): SchedulerModel {
  const gpuCount = given.gpuBytes.length;
  const invariants = new Invariants();
  let draws = 0;
  const model = new SchedulerModel({
    gpus: gpusOf(given),
    policy: given.policy,
    cpu: given.cpu,
    workers: given.workers,
    host: given.host,
    stretch: () => given.stretches[draws++ % given.stretches.length]!,
    watch: (view) => invariants.check(view),
    keepsLog,
    ...(makeScheduler && { makeScheduler }),
  });
  const joinShapeOf = (functionIndex: number) => given.joins?.[functionIndex];
  const arrive = (functionIndex: number): void => {
    const join = joinShapeOf(functionIndex);
    model.arrive(functionIndex, join && joinOf(join, model.arrived));
  };
  const apply = (operation: Operation): void => {
    switch (operation.kind) {
      case 'arrive':
        if (model.has(operation.functionIndex)) arrive(operation.functionIndex);
        break;
      case 'burst':
        for (let call = 0; call < operation.size && model.has(operation.functionIndex); call++) {
          arrive(operation.functionIndex);
        }
        break;
      case 'pass':
        model.pass(operation.ms);
        break;
      case 'change':
        invariants.sheetChanged(operation.functionIndex);
        model.setSheet(
          operation.functionIndex,
          sheetOf(gpuCount, operation.shape, joinShapeOf(operation.functionIndex)),
        );
        break;
      case 'remove':
        if (model.has(operation.functionIndex)) model.removeFunction(operation.functionIndex);
        break;
      case 'gpu':
        if (gpuCount > 0) {
          const gpu = operation.gpu % gpuCount;
          if (model.isUp(gpu)) into.gpuLosses++;
          model.setGpu(gpu, !model.isUp(gpu));
        }
        break;
      case 'host':
        if (given.host === undefined) break;
        if (operation.capacityBytes === undefined) {
          into.hostLosses++;
          model.loseHost();
        } else model.resizeHost(operation.capacityBytes);
        break;
      case 'read':
        model.failRead(operation.as);
        break;
      case 'hold':
        model.hold(operation.functionIndex, operation.ms);
        break;
      case 'divide':
        invariants.sheetChanged(operation.functionIndex);
        model.divideHost(operation.functionIndex, operation.executedBytes);
        break;
      case 'forget':
        invariants.sheetChanged(operation.functionIndex);
        model.divideHost(operation.functionIndex, 'nothing');
        break;
      case 'room':
        if (gpuCount > 0) model.makeRoom(operation.gpu % gpuCount, operation.bytes, operation.spared);
        break;
      case 'depart':
        model.depart(operation.place);
        break;
      case 'refuse':
        if (model.refuseRun(operation.place)) into.refusals++;
        break;
    }
  };
  try {
    for (const [index, shape] of given.shapes.entries())
      model.setSheet(index, sheetOf(gpuCount, shape, joinShapeOf(index)));
    for (const operation of given.operations) apply(operation);
    model.drain();
    if (model.ended !== model.arrived) throw new Error(`${model.arrived} arrived, and ${model.ended} ended`);
  } catch (error) {
    throw new SeedFailure((error as Error).message, model.log, { cause: error });
  }
  into.arrivals += model.arrived;
  into.events += model.told.length;
  into.evictions += model.evictions;
  into.reads += model.reads;
  into.shrinks += model.shrinks;
  into.growths += model.growths;
  into.shed += model.shed;
  into.companions += model.companions;
  return model;
}
